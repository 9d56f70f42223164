"""rdiff-backup: the newest as a mirror, the older ones as gzipped differences from the next."""

from .base import Tool


class RdiffBackup(Tool):
    name = program = "rdiff-backup"
    note = "the newest backup is a plain mirror; only differences are compressed"

    def __init__(self, place):
        super().__init__(place)
        self.done = 0

    def backup(self, step):
        self.done = step
        return f"rdiff-backup backup {self.source} {self.repo}"

    def restore(self, step):
        return f"rdiff-backup restore --at {self.done - step}B {self.repo} {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


ROWS = [RdiffBackup]
