"""Drumlin, exactly as it comes: its default repository, which the first backup makes, and its default key, a file; no flag
but -q. The program is $DRUMLIN, or the one on the PATH, or target/release/drumlin."""

import os
import shlex
import shutil
from pathlib import Path

from ..machine import first_line
from .base import Tool, which

BUILT = Path(__file__).resolve().parents[3] / "target/release/drumlin"


def program():
    """The program under test; a name that isn't there, where it isn't."""
    return os.path.abspath(found) if (found := which(os.environ.get("DRUMLIN"), "drumlin", BUILT)) and "/" in found else found or str(BUILT)


class Drumlin(Tool):
    name = program = "drumlin"
    deduplicates = compresses = encrypts = True
    streams = True
    order, far = 0, True
    note = "unlocks with a key file, as it does by itself"

    def __init__(self, place):
        super().__init__(place)
        if not place.is_far:
            place.repo = place.root / "drumlin" / "repository"
        self.run, self.done = f"{shlex.quote(program())} -q", 0

    @classmethod
    def missing(cls):
        return [] if which(program()) else [program()]

    @classmethod
    def binary(cls):
        return shutil.which(program())

    @classmethod
    def version(cls):
        return first_line(f"{shlex.quote(program())} --version")

    def settings(self):
        return {"XDG_DATA_HOME": str(self.place.root), **(self.remote() if self.place.server else {})}

    def remote(self):
        """Its variables where the repository is on another machine."""
        return {"DRUMLIN_REPOSITORY": self.there("sftp://{host}{path}"), "DRUMLIN_KEY_FILE": f"{self.place.home}/key"}

    def init(self):
        # The default repository is made by the first backup, no other is.
        return f"{self.run} init" if self.place.server else None

    def backup(self, step):
        self.done = step
        return f"{self.run} backup {self.source}"

    def restore(self, step):
        return f"{self.run} restore {self.snapshot(step)} --target {self.out}"

    def snapshot(self, step):
        return f"latest~{self.done - step}" if step < self.done else "latest"

    def stream(self, step, command):
        self.done = step
        return f"{self.run} backup --command stream -- bash -c {shlex.quote('set -o pipefail; ' + command)}"

    def unstream(self, step):
        return f"{self.run} dump {self.snapshot(step)} stream > {self.out}/stream"

    def keep(self):
        return (f"{self.run} check", f"{self.run} check --read-data", f"{self.run} forget --group-by host --keep-last 3 --prune",
                f"{self.run} prune")


class WithPassphrase(Drumlin):
    name = "drumlin-passphrase"
    of = "drumlin"
    note = "unlocks with a passphrase, as most of its peers do by themselves"

    def settings(self):
        return {**super().settings(), "DRUMLIN_PASSWORD": "x"}

    def remote(self):
        return {"DRUMLIN_REPOSITORY": self.there("sftp://{host}{path}")}

    def init(self):
        return f"{self.run} init"


ROWS = [Drumlin, WithPassphrase]
