"""kopia: seals by itself; compresses when a policy says so, hence a second row."""

from ..machine import first_line, made_of
from .base import Tool, piped


class Kopia(Tool):
    name = program = "kopia"
    deduplicates = encrypts = True
    streams = far = True
    note = "leaves out folders with a CACHEDIR.TAG"

    @classmethod
    def version(cls):
        told = first_line("kopia --version | sed 's/^/kopia /; s/ build:.*//'")
        return told and told + made_of(cls.binary())

    def settings(self):
        return {"KOPIA_PASSWORD": "x", "KOPIA_CONFIG_PATH": f"{self.place.home}/kopia.config", "KOPIA_CHECK_FOR_UPDATES": "false",
                "KOPIA_CACHE_DIRECTORY": f"{self.place.home}/cache/kopia", "KOPIA_LOG_DIR": f"{self.place.home}/log"}

    def init(self):
        if not self.place.server:
            return f"kopia repository create filesystem --path {self.repo}"
        server = self.place.server
        return (f"kopia repository create sftp --path {self.repo} --host 127.0.0.1 --port {server.wire.port} --username {server.user} "
                f"--keyfile {server.ssh}/key --known-hosts {server.ssh}/known_hosts")

    def backup(self, step):
        return f"kopia snapshot create --tags step:s{step} {self.source}"

    def restore(self, step):
        return f"kopia restore {self.told(self.ids(step))[0]} {self.out}"

    def ids(self, step):
        return f"kopia snapshot list --tags step:s{step} --json | grep -o '\"id\":\"[0-9a-f]*\"' | cut -d'\"' -f4"

    def landing(self, step):
        return self.place.out

    def stream(self, step, command):
        return piped(command, f"kopia snapshot create --tags step:s{step} --stdin-file stream /stream")

    def unstream(self, step):
        return f"{self.restore(step)}"

    def keep(self):
        # Its own rules keep so many of each folder. Without --safety=none what it removes stays for hours; with it, for one run.
        forgotten = " ".join(self.told(" && ".join(map(self.ids, (1, 2, 3)))))
        give_back = "kopia maintenance run --full --safety=none"
        return ("kopia snapshot verify", "kopia snapshot verify --verify-files-percent=100",
                f"kopia snapshot delete --delete {forgotten} && {give_back} && {give_back}", give_back)


class Compressing(Kopia):
    name, of = "kopia-zstd", "kopia"
    compresses = True

    def init(self):
        return f"{super().init()} && kopia policy set --global --compression zstd"


ROWS = [Kopia, Compressing]
