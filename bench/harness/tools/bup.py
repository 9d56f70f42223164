"""bup: compresses; can't seal. It keeps its index beside what it saves to."""

from .base import Tool, piped


class Bup(Tool):
    name = program = "bup"
    compresses = streams = True
    note = "its index lies in the repository's folder"

    def settings(self):
        return {"BUP_DIR": str(self.place.repo)}

    def init(self):
        return "bup init"

    def backup(self, step):
        # Saves are named by the second.
        return f"bup index {self.source} && bup save -n tree {self.source}"

    def save(self, step):
        return f"$(bup ls tree | grep -v latest | tr ' ' '\\n' | grep . | sort | sed -n {step}p)"

    def restore(self, step):
        return f"bup restore -q -C {self.out} /tree/{self.save(step)}{self.source}/."

    def landing(self, step):
        return self.place.out

    def stream(self, step, command):
        return piped(command, f"bup split -n stream{step}")

    def unstream(self, step):
        return f"bup join stream{step} > {self.out}/stream"


ROWS = [Bup]
