"""dar: an archive of all, then archives of what has changed since the last."""

from .base import Tool


class Dar(Tool):
    name = program = "dar"
    # What compresses; what opens an archive, and the one that a backup refers to.
    codec = key = reference = ""
    note = "a restore goes through all archives up to its own"

    def backup(self, step):
        since = f"-A {self.repo}/{step - 1} {self.reference}" if step > 1 else ""
        return f"dar -Q -q -c {self.repo}/{step} -R {self.source} {since} {self.codec} {self.key}"

    def restore(self, step):
        return " && ".join(f"dar -Q -q -x {self.repo}/{number} -R {self.out} -w {self.key}" for number in range(1, step + 1))

    def landing(self, step):
        return self.place.out


class Sealed(Dar):
    name, of = "dar-zstd-aes", "dar"
    compresses = encrypts = True
    codec, key, reference = "-zzstd:3", "-K aes:x", "-J aes:x"
    note = "a restore goes through all archives up to its own; -z zstd:3 -K aes"


ROWS = [Dar, Sealed]
