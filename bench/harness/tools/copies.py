"""What only copies: cp, and rsync with hard links to the copy before."""

from .base import Tool


class Cp(Tool):
    name = program = "cp"
    order = 1
    note = "saves everything each time"

    def backup(self, step):
        return f"mkdir {self.repo}/{step} && cp -a {self.source} {self.repo}/{step}/"

    def restore(self, step):
        return f"cp -a {self.repo}/{step}/{self.place.source.name} {self.out}/"

    def landing(self, step):
        return self.place.out / self.place.source.name


class Rsync(Cp):
    name = program = "rsync"
    far = True
    note = "--link-dest: a hard link for each file that is as it was"

    @property
    def target(self):
        return self.there("{host}:{path}", self.repo)

    def init(self):
        # Far away a login for that alone would be too much.
        return None if self.place.server else super().init()

    def backup(self, step):
        link = f"--link-dest=../{step - 1}" if step > 1 else "--mkpath" * bool(self.place.server)
        return f"rsync -aHAX {link} {self.source} {self.target}/{step}/"

    def restore(self, step):
        return f"rsync -aHAX {self.target}/{step}/ {self.out}/"


ROWS = [Cp, Rsync]
