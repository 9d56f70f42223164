"""bupstash: compresses and seals by itself."""

import shlex

from ..machine import first_line
from .base import Tool


class Bupstash(Tool):
    name = program = "bupstash"
    deduplicates = compresses = encrypts = True
    streams = far = True

    @classmethod
    def version(cls):
        return first_line("bupstash version")

    def settings(self):
        home = self.place.home
        return {"BUPSTASH_KEY": f"{home}/key", "BUPSTASH_REPOSITORY": self.there("ssh://{host}{path}"),
                "BUPSTASH_QUERY_CACHE": f"{home}/query", "BUPSTASH_SEND_LOG": f"{home}/send"}

    def init(self):
        return f"bupstash init && bupstash new-key -o {self.home}/key"

    def backup(self, step):
        return f"bupstash put step=s{step} {self.source}"

    def restore(self, step):
        return f"bupstash restore --into {self.out} step=s{step}"

    def landing(self, step):
        return self.place.out

    def stream(self, step, command):
        return f"bupstash put --exec step=s{step} bash -c {shlex.quote('set -o pipefail; ' + command)}"

    def unstream(self, step):
        return f"bupstash get step=s{step} > {self.out}/stream"


ROWS = [Bupstash]
