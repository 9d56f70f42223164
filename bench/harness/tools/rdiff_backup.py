"""rdiff-backup: the newest as a mirror, the older ones as gzipped differences from the next."""

from .base import Tool


class RdiffBackup(Tool):
    name = program = "rdiff-backup"
    far = True
    note = "the newest backup is a plain mirror; only differences are compressed; over a line, ssh compresses (-C)"

    def __init__(self, place):
        super().__init__(place)
        self.done = 0

    @property
    def target(self):
        return self.there("{host}::{path}", self.repo)

    def init(self):
        # It makes the folder itself.
        return None if self.place.server else super().init()

    def backup(self, step):
        self.done = step
        return f"rdiff-backup backup {self.source} {self.target}"

    def restore(self, step):
        return f"rdiff-backup restore --at {self.done - step}B {self.target} {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


ROWS = [RdiffBackup]
