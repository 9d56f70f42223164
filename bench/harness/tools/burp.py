"""burp: a client and a server over TLS, with a counted wire between them; compresses (zlib); the repository isn't sealed by
itself, hence a second row with a passphrase."""

import subprocess

from ..machine import first_line
from ..measure import dismiss
from ..wire import Wire, free_port, listens
from .base import Tool

SERVER = """\
mode = server
listen = 127.0.0.1:{port}
directory = {repo}
clientconfdir = {home}/clients
pidfile = {home}/server.pid
stdout = 1
syslog = 0
user = root
group = root
client_can_force_backup = 1
client_can_list = 1
client_can_restore = 1
client_can_delete = 1
keep = 100
dedup_group = global
hardlinked_archive = 0
working_dir_recovery_method = delete
max_children = 5
umask = 0022
ca_conf = {home}/CA.cnf
ca_name = bench-ca
ca_server_name = server
ca_burp_ca = /usr/sbin/burp_ca
ssl_cert_ca = {home}/ssl_cert_ca-server.pem
ssl_cert = {home}/ssl_cert-server.pem
ssl_key = {home}/ssl_cert-server.key
ssl_key_password = x
ssl_dhfile = {home}/dhfile.pem
timer_script = /bin/true
"""
CLIENT = """\
mode = client
server = 127.0.0.1
port = {port}
password = x
cname = bench
pidfile = {home}/client.pid
stdout = 1
syslog = 0
progress_counter = 0
server_can_restore = 0
ca_burp_ca = /usr/sbin/burp_ca
ca_csr_dir = {home}/client-ca
ssl_cert_ca = {home}/client-ca/ssl_cert_ca.pem
ssl_cert = {home}/client-ca/ssl_cert-client.pem
ssl_key = {home}/client-ca/ssl_cert-client.key
ssl_key_password = x
ssl_peer_cn = server
include = {source}
cross_all_filesystems = 1
{more}
"""
# How long the server may take, in seconds, until a backup has become the current one.
PATIENCE = 600
# As Debian ships it but for the folder.
CA = "/etc/burp/CA.cnf"


class Burp(Tool):
    name = program = "burp"
    needs = ("burp_ca", "openssl")
    compresses = True
    note = "over TLS to a server of its own on this machine"
    more = ""
    process = relay = None

    @classmethod
    def version(cls):
        return first_line("burp -V")

    def start(self):
        home, port = self.place.home, free_port()
        for folder in (home / "clients", home / "client-ca", self.place.repo):
            folder.mkdir()
        (home / "clients" / "bench").write_text("password = x\n")
        with open(CA) as file:
            text = file.read()
        (home / "CA.cnf").write_text("\n".join(f"CA_DIR = {home}/CA" if line.startswith("CA_DIR") else line for line in text.splitlines()) + "\n")
        # A standard group: to find one of its own takes burp minutes.
        subprocess.run(["openssl", "genpkey", "-genparam", "-algorithm", "DH", "-pkeyopt", "group:ffdhe2048", "-out", f"{home}/dhfile.pem"],
                       check=True, capture_output=True)
        (home / "server.conf").write_text(SERVER.format(port=port, repo=self.place.repo, home=home))
        self.log = open(home / "server.log", "wb")
        self.process = subprocess.Popen(["burp", "-F", "-c", f"{home}/server.conf"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        if not listens(port, 60.0):
            raise OSError(f"burp's server does not come up: {(home / 'server.log').read_text()[-1000:]}")
        self.relay = Wire(port, home / "wire", self.place.rtt_ms, self.place.rate).__enter__()
        (home / "client.conf").write_text(CLIENT.format(port=self.relay.port, home=home, source=self.place.source, more=self.more))
        # The first contact makes the client's certificate, and waits five seconds before it goes on.
        self.told(f"burp -c {self.home}/client.conf -a l")

    def close(self):
        if self.relay:
            self.relay.__exit__()
        if self.process:
            dismiss([self.process])
            self.log.close()

    def servers(self):
        return [self.process.pid]

    def wire(self):
        return self.relay

    def init(self):
        return None

    def backup(self, step):
        # The server goes on when the client has left; the backup counts when it has become the current one.
        # The shell itself looks: other programs would be counted as the client, and take their time from the server.
        wait = (f"for ((i = 0; i < {PATIENCE * 50}; i++)); do set -- {self.repo}/bench/{step:07}\\ *; [[ $1 -ef {self.repo}/bench/current ]] && exit 0; sleep 0.02; done; exit 1")
        return f"burp -c {self.home}/client.conf -a b && ({wait})"

    def restore(self, step):
        return f"burp -c {self.home}/client.conf -a r -b {step} -d {self.out}"


class Sealed(Burp):
    name, of = "burp-sealed", "burp"
    encrypts = True
    more = "encryption_password = x"
    note = "over TLS to a server of its own on this machine; contents sealed by the client (encryption_password)"


ROWS = [Burp, Sealed]
