"""borg 1 and 2. Both seal, as their guides begin, and compress by themselves (lz4)."""

from ..machine import first_line
from .base import Tool, piped, which


class Borg(Tool):
    name = "borg"
    program = "borg"
    deduplicates = compresses = encrypts = True
    streams = far = True
    fine = (0, 1)  # 1: warnings
    make = "borg init -e repokey"
    address = "ssh://{host}{path}"

    @classmethod
    def version(cls):
        return first_line(f"{cls.program} --version", {"BORG_BASE_DIR": "/nonexistent"})

    @classmethod
    def missing(cls):
        """A program of this major version: `borg` may be either."""
        lacking = super().missing()
        said = "" if lacking else cls.version() or ""
        return lacking or ([] if said.startswith(("borg 1.", "borg2 1.")) else [cls.program])

    def settings(self):
        return {"BORG_PASSPHRASE": "x", "BORG_REPO": self.there(self.address), "BORG_REMOTE_PATH": self.program,
                "BORG_BASE_DIR": f"{self.place.home}/borg", "BORG_RELOCATED_REPO_ACCESS_IS_OK": "yes"}

    def init(self):
        return self.make

    def backup(self, step):
        return f"{self.program} create {self.archive(step)} {self.source}"

    def archive(self, step):
        return f"::s{step}"

    def saved(self, step):
        """What a restore calls the archive of a step."""
        return self.archive(step)

    def restore(self, step):
        return f"cd {self.out} && {self.program} extract {self.saved(step)}"

    def stream(self, step, command):
        return piped(command, f"{self.program} create --stdin-name stream {self.archive(step)} -")

    def unstream(self, step):
        return f"{self.program} extract --stdout {self.saved(step)} stream > {self.out}/stream"

    def keep(self):
        return ("borg check", "borg check --verify-data", "borg prune --keep-last 3 && borg compact", "borg compact")


class Zstd(Borg):
    name, of, default = "borg-zstd", "borg", False

    def backup(self, step):
        return f"{self.program} create -C zstd,3 {self.archive(step)} {self.source}"


class Borg2(Borg):
    name = "borg2"
    program = which("borg2") or "borg2"
    make = "borg2 repo-create -e aes256-ocb"
    address = "rest://{host}/{path}"
    note = "a beta: not for use, its authors say"

    @classmethod
    def missing(cls):
        return super(Borg, cls).missing()

    def archive(self, step):
        # One name for all, a series, as its guide has it: it knows by the name which files it has seen.
        return "tree"

    def saved(self, step):
        return f"aid:{self.told(f'{self.program} repo-list --sort-by timestamp --short')[step - 1]}"

    def keep(self):
        return ("borg2 check", "borg2 check --verify-data", "borg2 prune --keep 3 && borg2 compact", "borg2 compact")


ROWS = [Borg, Zstd, Borg2]
