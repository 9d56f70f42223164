"""restic and rustic: one format, two programs. Both compress and seal by themselves."""

from ..far import HOST
from ..machine import first_line, made_of
from .base import Tool, piped


class Restic(Tool):
    name = program = "restic"
    deduplicates = compresses = encrypts = True
    streams = far = True

    @classmethod
    def version(cls):
        told = first_line(f"{cls.program} version")
        return told and told + made_of(cls.binary())

    def settings(self):
        return {"RESTIC_PASSWORD": "x", "RESTIC_REPOSITORY": self.there("sftp:{host}:{path}")}

    def init(self):
        return "restic -q init"

    def backup(self, step):
        return f"restic -q backup --tag s{step} {self.source}"

    def restore(self, step):
        return f"restic -q restore latest --tag s{step} --target {self.out}"

    def stream(self, step, command):
        return piped(command, f"restic -q backup --tag s{step} --stdin --stdin-filename stream")

    def unstream(self, step):
        return f"restic -q dump latest --tag s{step} stream > {self.out}/stream"

    def keep(self):
        return ("restic -q check", "restic -q check --read-data", "restic -q forget --group-by host --keep-last 3 --prune", "restic -q prune")


class Rustic(Restic):
    name = program = "rustic"
    note = ("streams with --force: without it a second stream is taken to be unchanged, and not read; over a line, each command leaves "
            "an ssh behind, whose memory counts until the tool's last command")

    @classmethod
    def version(cls):
        return Tool.version.__func__(cls)

    def settings(self):
        # It runs ssh, which knows the server by its name.
        of = {"RUSTIC_REPO_OPT_ENDPOINT": f"ssh://{HOST}", "RUSTIC_REPO_OPT_ROOT": str(self.place.repo),
              "RUSTIC_REPO_OPT_KNOWN_HOSTS_STRATEGY": "strict"} if self.place.server else {}
        return {"RUSTIC_PASSWORD": "x", "RUSTIC_REPOSITORY": self.there("opendal:sftp"), "RUSTIC_NO_PROGRESS": "true", **of}

    def init(self):
        return "rustic init"

    def backup(self, step):
        return f"rustic backup --tag s{step} {self.source}"

    def restore(self, step):
        return f"rustic restore --filter-tags s{step} latest:{self.source} {self.out}"

    def landing(self, step):
        return self.place.out

    def stream(self, step, command):
        return piped(command, f"rustic backup --force --tag s{step} --stdin-filename stream -")

    def unstream(self, step):
        return f"rustic dump --filter-tags s{step} latest:stream > {self.out}/stream"

    def keep(self):
        # Without --instant-delete it keeps what it removes for a day: the room would not be given back.
        return ("rustic check", "rustic check --read-data",
                "rustic forget --group-by host --keep-last 3 --prune --instant-delete", "rustic prune --instant-delete")


ROWS = [Restic, Rustic]
