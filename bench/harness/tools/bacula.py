"""Bacula: a director with its catalogue (SQLite) and a storage daemon as the server, a file daemon as the client, started by the
console. Neither compresses nor seals by itself, hence a second row."""

import secrets
import subprocess
from pathlib import Path

from ..machine import first_line
from ..measure import dismiss
from ..wire import Wire, free_port, listens
from .base import Tool

DIRECTOR = """\
Director {{
  Name = director; DirAddress = 127.0.0.1; DirPort = {director}; Password = "{word}"; Messages = log
  QueryFile = "/etc/bacula/scripts/query.sql"; WorkingDirectory = "{home}/director"; PidDirectory = "{home}/director"
}}
Catalog {{ Name = catalog; DBName = "catalog"; DBUser = ""; DBPassword = "" }}
Messages {{ Name = log; Append = "{home}/log" = all, !skipped, !restored }}
Client {{
  Name = client; Address = 127.0.0.1; FDPort = {to_client}; FDStorageAddress = {to_storage}; Password = "{word}"
  Catalog = catalog; AutoPrune = no
}}
Storage {{ Name = storage; Address = 127.0.0.1; SDPort = {storage}; Password = "{word}"; Device = folder; MediaType = file }}
Pool {{ Name = pool; PoolType = Backup; LabelFormat = "volume-"; Recycle = no; AutoPrune = no }}
FileSet {{ Name = tree; Include {{ Options {{ Signature = MD5; OneFS = no; {options} }} File = "{source}" }} }}
JobDefs {{ Name = both; Client = client; Storage = storage; Pool = pool; FileSet = tree; Messages = log }}
Job {{ Name = save; Type = Backup; Level = Incremental; Accurate = yes; JobDefs = both }}
Job {{ Name = giveback; Type = Restore; Where = "{out}"; JobDefs = both }}
"""
STORAGE = """\
Storage {{ Name = storage; SDAddress = 127.0.0.1; SDPort = {storage}; WorkingDirectory = "{home}/storage"; PidDirectory = "{home}/storage" }}
Director {{ Name = director; Password = "{word}" }}
Device {{
  Name = folder; MediaType = file; ArchiveDevice = "{repo}"; LabelMedia = yes; RandomAccess = yes; AutomaticMount = yes
  RemovableMedia = no; AlwaysOpen = no
}}
Messages {{ Name = log; Director = director = all }}
"""
CLIENT = """\
FileDaemon {{
  Name = client; FDAddress = 127.0.0.1; FDPort = {client}; WorkingDirectory = "{home}/client"; PidDirectory = "{home}/client"
  {seal}
}}
Director {{ Name = director; Password = "{word}" }}
Messages {{ Name = log; Director = director = all, !skipped, !restored }}
"""
CONSOLE = 'Director {{ Name = director; Address = 127.0.0.1; DirPort = {director}; Password = "{word}" }}\n'
FILES = {"director": DIRECTOR, "storage": STORAGE, "client": CLIENT, "console": CONSOLE}
# As Debian ships it, for a database of any name.
TABLES = "/usr/share/bacula-director/make_sqlite3_tables"


class Bacula(Tool):
    name, program = "bacula", "bconsole"
    needs = ("bacula-dir", "bacula-sd", "bacula-fd", "sqlite3")
    note = "accurate jobs; a server of two daemons, by TCP without TLS"
    options = seal = ""

    def __init__(self, place):
        super().__init__(place)
        self.daemons, self.relay, self.log = [], None, f"{self.home}/log"

    @classmethod
    def version(cls):
        return first_line("bconsole -? 2>&1 | grep Version | sed 's/^Version: */bacula /; s/ (.*//'")

    def start(self):
        home, repo = self.place.home, self.place.repo
        for folder in (home / "director", home / "storage", home / "client", repo):
            folder.mkdir()
        (home / "log").touch()
        self.make_tables(home / "director" / "catalog.db")
        of = {"home": home, "repo": repo, "source": self.place.source, "out": self.place.out, "word": secrets.token_hex(16),
              "director": free_port(), "storage": free_port(), "client": free_port(), "options": self.options,
              "seal": self.seal.format(home=home)}
        # The client reaches the storage daemon at another address of this machine, the director does not: what the two halves
        # of the server say to each other passes no wire.
        wire = Wire(of["storage"], home / "wire", self.place.rtt_ms, self.place.rate, to_client=of["client"], address="127.0.0.2")
        of.update(to_storage=wire.address, to_client=wire.client_port)
        for name, text in FILES.items():
            (home / f"{name}.conf").write_text(text.format(**of))
        for name, program in (("director", "bacula-dir"), ("storage", "bacula-sd"), ("client", "bacula-fd")):
            with open(home / f"{name}.log", "wb") as log:
                self.daemons.append(subprocess.Popen([program, "-f", "-P", "-c", f"{home}/{name}.conf"], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
            if not listens(of[name], 30.0):
                raise OSError(f"{program} does not come up: {(home / f'{name}.log').read_text()[-1000:]}")
        self.relay = wire.__enter__()

    def make_tables(self, catalog):
        script = Path(TABLES).read_text().replace("cd /var/lib/bacula", f"cd {catalog.parent}").replace("XXX_DBNAME_XXX", catalog.stem)
        subprocess.run(["sh", "-s"], input=script, text=True, check=True, capture_output=True)

    def close(self):
        if self.relay:
            self.relay.__exit__()
        dismiss(self.daemons)

    def servers(self):
        return [daemon.pid for daemon in self.daemons[:2]]

    def clients(self):
        return [daemon.pid for daemon in self.daemons[2:]]

    def wire(self):
        return self.relay

    def init(self):
        return None

    def job(self, command):
        """Runs a job to its end; its last words where it ends in any other way than well."""
        # The console's own way to wait looks once a second. The log is written when all is done.
        return (f"exec 3< <(exec tail -c +$(($(stat -c %s {self.log}) + 1)) -f {self.log}); reader=$!; "
                f"echo {command} | bconsole -n -c {self.home}/console.conf > {self.home}/said && grep 'Job queued' {self.home}/said && "
                f'while read -r line <&3; do case "$line" in *Termination:*) break ;; esac; done; kill $reader; '
                f'[[ "$line" =~ (Backup|Restore)\\ OK ]] || {{ tail -n 20 {self.home}/said {self.log}; false; }}')

    def backup(self, step):
        return self.job("run job=save yes")

    def restore(self, step):
        # Backups are the jobs from 1 on: the first is whole, the others are what has changed since the one before.
        jobs = ",".join(map(str, range(1, step + 1)))
        return self.job(f"restore restorejob=giveback client=client jobid={jobs} all done yes")


class Sealed(Bacula):
    name, of = "bacula-sealed", "bacula"
    needs = (*Bacula.needs, "openssl")
    compresses = encrypts = True
    options = "Compression = GZIP;"
    seal = 'PKISignatures = yes; PKIEncryption = yes; PKIKeypair = "{home}/keypair.pem"'
    note = "accurate jobs; gzip, and contents sealed by the client (PKIEncryption), names not; a server of two daemons, by TCP without TLS"

    def start(self):
        home = self.place.home
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=client", "-days", "2",
                        "-keyout", f"{home}/key.pem", "-out", f"{home}/certificate.pem"], check=True, capture_output=True)
        (home / "keypair.pem").write_bytes((home / "key.pem").read_bytes() + (home / "certificate.pem").read_bytes())
        super().start()


ROWS = [Bacula, Sealed]
