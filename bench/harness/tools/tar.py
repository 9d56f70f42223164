"""tar, alone and with compressors: each backup is a whole archive."""

from .base import Tool, piped

SEAL = "age --encrypt --recipients-file {home}/key.public"
OPEN = "age --decrypt --identity {home}/key"
MAKE_KEY = "age-keygen --output {home}/key && grep -o 'age1.*' {home}/key > {home}/key.public"


class Tar(Tool):
    name = program = "tar"
    order, far = 1, True
    note = "saves everything each time"
    # What the archive goes through, and back.
    through, back = (), ()
    suffix = "tar"

    def init(self):
        # Far away a login for that alone would be too much.
        return "true" if self.place.server else f"mkdir -p {self.repo}"

    def archive(self, step):
        return f"{self.repo}/{step}.{self.suffix}"

    def backup(self, step):
        tar = f"tar -C {self.source}/.. -cf - {self.place.source.name}"
        if not self.through and not self.place.server:
            return f"tar -C {self.source}/.. -cf {self.archive(step)} {self.place.source.name}"
        parts = [part.format(home=self.home) for part in self.through]
        if self.place.server:
            return piped(tar, *parts, self.over(f"mkdir -p {self.repo} && cat > {self.archive(step)}"))
        return piped(tar, *parts) + f" > {self.archive(step)}"

    def restore(self, step):
        if not self.back and not self.place.server:
            return f"tar -C {self.out} -xf {self.archive(step)}"
        parts = [*(part.format(home=self.home) for part in self.back), f"tar -C {self.out} -xf -"]
        if self.place.server:
            return piped(self.over(f"cat {self.archive(step)}"), *parts)
        return piped(f"{parts[0]} < {self.archive(step)}", *parts[1:])

    def landing(self, step):
        return self.place.out / self.place.source.name


class Zstd(Tar):
    name, needs, of = "tar-zstd", ("zstd",), "tar"
    compresses = True
    through, back, suffix = ("zstd -q -T0",), ("zstd -qdc",), "tar.zst"
    note = "saves everything each time; zstd on all cores"


class Bzip2(Tar):
    name, needs, of = "tar-bzip2", ("bzip2",), "tar"
    compresses = True
    through, back, suffix = ("bzip2",), ("bzip2 -dc",), "tar.bz2"


class Sealed(Tar):
    name, needs, of = "tar-zstd-age", ("zstd", "age"), "tar"
    compresses = encrypts = True
    through, back, suffix = ("zstd -q -T0", SEAL), (OPEN, "zstd -qdc"), "tar.zst.age"
    note = "saves everything each time; zstd on all cores, sealed by age"

    def init(self):
        return f"{super().init()} && {MAKE_KEY.format(home=self.home)}"


class Stream(Tool):
    """A stream through a compressor into a file: what a database's dump is beside."""

    name = program = "zstd"
    order, trees, streams = 1, False, True
    compresses = True
    note = "zstd on all cores, a file each time"

    def stream(self, step, command):
        return piped(command, f"zstd -q -T0 > {self.repo}/{step}.zst")

    def unstream(self, step):
        return f"zstd -qdc {self.repo}/{step}.zst > {self.out}/stream"


class SealedStream(Stream):
    name, needs, of = "zstd-age", ("age",), "zstd"
    encrypts = True
    note = "zstd on all cores, sealed by age, a file each time"

    def init(self):
        return f"mkdir -p {self.repo} && {MAKE_KEY.format(home=self.home)}"

    def stream(self, step, command):
        return piped(command, "zstd -q -T0", SEAL.format(home=self.home)) + f" > {self.repo}/{step}.zst.age"

    def unstream(self, step):
        return piped(f"{OPEN.format(home=self.home)} < {self.repo}/{step}.zst.age", f"zstd -qdc > {self.out}/stream")


class Plain(Tool):
    """A stream into a file: what the program that makes it takes by itself."""

    name = "file"
    program = "cat"
    order, trees, streams = 1, False, True
    note = "the stream into a file, a file each time"

    def stream(self, step, command):
        return f"{command} > {self.repo}/{step}"

    def unstream(self, step):
        return f"cp {self.repo}/{step} {self.out}/stream"


ROWS = [Tar, Zstd, Bzip2, Sealed, Stream, SealedStream, Plain]
