"""casync and desync: a store of compressed chunks, a file each, and an index a backup. Neither seals."""

from ..machine import first_line, made_of
from .base import Tool


class Casync(Tool):
    name = program = "casync"
    deduplicates = compresses = True
    note = "a file a chunk"

    def backup(self, step):
        return f"casync make --store={self.repo}/store {self.repo}/{step}.caidx {self.source}"

    def restore(self, step):
        return f"casync extract --store={self.repo}/store --seed-output=no {self.repo}/{step}.caidx {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


class Desync(Tool):
    name = program = "desync"
    deduplicates = compresses = True
    note = "a file a chunk"

    @classmethod
    def version(cls):
        # It has no word for that; its maker wrote it into the program.
        told = first_line("go version -m $(command -v desync) | awk '$1 == \"mod\" { print \"desync \" $3 }'")
        return (told or "not told") + made_of(cls.binary())

    def init(self):
        return f"mkdir -p {self.repo}/store"

    def backup(self, step):
        return f"desync tar -i -s {self.repo}/store {self.repo}/{step}.caidx {self.source}"

    def restore(self, step):
        return f"mkdir {self.out}/tree && desync untar -i -s {self.repo}/store {self.repo}/{step}.caidx {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


ROWS = [Casync, Desync]
