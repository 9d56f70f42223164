"""zpaq: one journalling archive; compresses, and seals when it is told to."""

from ..machine import first_line
from .base import Tool


class Zpaq(Tool):
    name = program = "zpaq"
    deduplicates = compresses = True
    key = ""
    note = "keeps times to the second, no owners"

    @classmethod
    def version(cls):
        return first_line("zpaq")

    def backup(self, step):
        # A version is made only if something has changed: so a restore names the moment.
        add = f"zpaq add {self.repo}/archive.zpaq {self.place.source.name} {self.key}"
        return f"cd {self.source}/.. && {add} && date -u +%Y%m%d%H%M%S > {self.home}/step{step}"

    def restore(self, step):
        return f"cd {self.out} && zpaq extract {self.repo}/archive.zpaq -until $(cat {self.home}/step{step}) {self.key}"

    def landing(self, step):
        return self.place.out / self.place.source.name


class Sealed(Zpaq):
    name, of = "zpaq-key", "zpaq"
    encrypts = True
    key = "-key x"
    note = "keeps times to the second, no owners; -key"


ROWS = [Zpaq, Sealed]
