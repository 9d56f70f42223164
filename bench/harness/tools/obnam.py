"""obnam 2: a client and a chunk server over TLS; seals, does not compress."""

import subprocess

from ..measure import dismiss
from ..wire import Wire, free_port, listens
from .base import Tool

SERVER = """\
address: "127.0.0.1:{port}"
chunks: {repo}
tls_key: {home}/tls.key
tls_cert: {home}/tls.pem
"""
CLIENT = """\
server_url: https://localhost:{port}
verify_tls_cert: false
roots: [{source}]
"""


class Obnam(Tool):
    name = program = "obnam"
    needs = ("obnam-server", "openssl")
    deduplicates = encrypts = True
    note = "over TLS to a server of its own on this machine; leaves out folders with a CACHEDIR.TAG"
    process = relay = None

    def start(self):
        home, port = self.place.home, free_port()
        self.place.repo.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-days", "2",
                        "-keyout", f"{home}/tls.key", "-out", f"{home}/tls.pem"], check=True, capture_output=True)
        (home / "server.yaml").write_text(SERVER.format(port=port, repo=self.place.repo, home=home))
        self.process = subprocess.Popen(["obnam-server", f"{home}/server.yaml"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not listens(port):
            raise OSError("obnam-server does not come up")
        self.relay = Wire(port, home / "wire", self.place.rtt_ms, self.place.rate).__enter__()
        (home / "client.yaml").write_text(CLIENT.format(port=self.relay.port, source=self.place.source, home=home))

    def close(self):
        if self.relay:
            self.relay.__exit__()
        if self.process:
            dismiss([self.process])

    def servers(self):
        return [self.process.pid]

    def wire(self):
        return self.relay

    def init(self):
        return f"echo x | obnam --config {self.home}/client.yaml init --insecure-passphrase=x"

    def backup(self, step):
        return f"obnam --config {self.home}/client.yaml backup"

    def restore(self, step):
        generation = self.told(f"obnam --config {self.home}/client.yaml list | sed -n {step}p | cut -d' ' -f1")[0]
        return f"obnam --config {self.home}/client.yaml restore {generation} {self.out}"


ROWS = [Obnam]
