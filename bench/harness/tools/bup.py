"""bup: compresses; can't seal. It keeps its index, of what the client has, beside what it saves to."""

from .base import Tool, piped


class Bup(Tool):
    name = program = "bup"
    deduplicates = compresses = streams = far = True
    note = "its index lies in the repository's folder, and counts as kept besides"

    @property
    def remote(self):
        """How its commands are told of a repository on another machine."""
        return self.there("-r {host}:{path} ", "")

    def settings(self):
        return {"BUP_DIR": f"{self.place.home}/bup" if self.place.server else str(self.place.repo)}

    def weighed(self):
        index = sorted(self.place.repo.glob("bupindex*"))
        return [path for path in sorted(self.place.repo.glob("*")) if path not in index], [self.place.home, *index]

    def init(self):
        return f"bup init && bup init {self.remote}" if self.place.server else "bup init"

    def backup(self, step):
        # Saves are named by the second.
        return f"bup index {self.source} && bup save {self.remote}-n tree {self.source}"

    def save(self, step):
        return sorted(name for name in self.told(f"bup ls {self.remote}tree") if "latest" not in name)[step - 1]

    def restore(self, step):
        return f"bup restore {self.remote}-q -C {self.out} /tree/{self.save(step)}{self.source}/."

    def landing(self, step):
        return self.place.out

    def stream(self, step, command):
        return piped(command, f"bup split {self.remote}-n stream{step}")

    def unstream(self, step):
        return f"bup join {self.remote}stream{step} > {self.out}/stream"


ROWS = [Bup]
