"""BackupPC 4 without its web pages: the server asks the client, an rsync daemon. Compresses (zlib); can't seal."""

import re
import secrets
import socket
import subprocess
import time
from pathlib import Path

from ..machine import first_line
from ..measure import dismiss, environment
from ..wire import Wire, free_port, listens
from .base import Tool

# As Debian ships them.
LIBRARY = Path("/usr/share/backuppc/lib")
PROGRAMS = Path("/usr/share/backuppc/bin")
SETTINGS = Path("/etc/backuppc/config.pl.sample")
# What an administrator sets: where it lies, who it runs as, how the client is found. Nothing begins by itself: no backup, and
# what is done once a night only in twelve hours.
OWN = """\
$Conf{{ConfDir}} = '{home}/etc';
$Conf{{TopDir}} = '{repo}';
$Conf{{LogDir}} = '{home}/log';
$Conf{{RunDir}} = '{home}/run';
$Conf{{BackupPCUserVerify}} = 0;
$Conf{{ServerHost}} = 'localhost';
$Conf{{MyPath}} = '/usr/bin:/bin';
$Conf{{PingCmd}} = '&{{sub {{ 0 }}}}';
$Conf{{NmbLookupCmd}} = '';
$Conf{{XferMethod}} = 'rsyncd';
$Conf{{RsyncShareName}} = ['source'];
$Conf{{RsyncdClientPort}} = {port};
$Conf{{RsyncdUserName}} = 'bench';
$Conf{{RsyncdPasswd}} = '{word}';
$Conf{{$_}} = 100 for qw(FullKeepCnt IncrKeepCnt);
$Conf{{BackupsDisable}} = 1;
$Conf{{$_}} = '' for qw(SmbClientPath NmbLookupPath PingPath Ping6Path SendmailPath SshPath CgiDir CgiImageDir);
$Conf{{WakeupSchedule}} = [{hour}];
1;
"""
CLIENT = """\
port = {port}
address = 127.0.0.1
use chroot = no
uid = {uid}
gid = {gid}
munge symlinks = no
auth users = bench
secrets file = {home}/secrets
[source]
path = {source}
read only = yes
[out]
path = {out}
read only = no
"""
REQUEST = """\
%RestoreReq = (num => {number}, hostSrc => '{host}', shareSrc => 'source', hostDest => '{host}', shareDest => 'out',
    pathHdrSrc => '/', pathHdrDest => '/', fileList => ['/'], user => 'bench', reqTime => time);
"""
HOST = "localhost"


class BackupPc(Tool):
    name = "backuppc"
    program = str(PROGRAMS / "BackupPC_dump")
    needs = ("rsync",)
    compresses = True
    pulls = ("steps", "restores")
    note = "a first backup, then incremental ones; from an rsync daemon on this machine"
    server = daemon = relay = None

    @classmethod
    def version(cls):
        return first_line(f"sed -n \"s/^ *Version => '\\([0-9.]*\\)'.*/backuppc \\1/p\" {LIBRARY}/BackupPC/Lib.pm")

    def settings(self):
        # The folder of its settings is a constant of its library, as written on installing: ours is read instead, in its stead.
        return {"PERL5LIB": f"{self.place.home}/lib:{LIBRARY}", "PERL5OPT": "-MBackupPC::Lib"}

    def start(self):
        home, repo, port, word = self.place.home, self.place.repo, free_port(), secrets.token_hex(16)
        for folder in (home / "etc", home / "lib" / "BackupPC", home / "log", home / "run", repo / "pc" / HOST, repo / "pool", repo / "cpool"):
            folder.mkdir(parents=True)
        library, found = re.subn(r'"/etc/backuppc"', f'"{home}/etc"', (LIBRARY / "BackupPC" / "Lib.pm").read_text())
        if not found:
            raise OSError(f"{LIBRARY}/BackupPC/Lib.pm does not say where the settings are")
        (home / "lib" / "BackupPC" / "Lib.pm").write_text(library)
        (home / "secrets").touch(0o600)
        (home / "secrets").write_text(f"bench:{word}\n")
        of = {"home": home, "repo": repo, "source": self.place.source, "out": self.place.out, "word": word,
              "uid": home.stat().st_uid, "gid": home.stat().st_gid}
        (home / "rsyncd.conf").write_text(CLIENT.format(port=port, **of))
        with open(home / "rsyncd.log", "wb") as log:
            self.daemon = subprocess.Popen(["rsync", "--daemon", "--no-detach", f"--config={home}/rsyncd.conf"], stdin=subprocess.DEVNULL,
                                           stdout=log, stderr=log)
        if not listens(port):
            raise OSError(f"the rsync daemon does not come up: {(home / 'rsyncd.log').read_text()[-1000:]}")
        self.relay = Wire(None, home / "wire", self.place.rtt_ms, self.place.rate, to_client=port).__enter__()
        (home / "etc" / "config.pl").write_text(SETTINGS.read_text() + OWN.format(port=self.relay.client_port, hour=(time.localtime().tm_hour + 12) % 24, **of))
        (home / "etc" / "hosts").write_text(f"host dhcp user moreUsers\n{HOST} 0 bench\n")
        with open(home / "server.log", "wb") as log:
            self.server = subprocess.Popen([str(PROGRAMS / "BackupPC")], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           env={**environment(), **self.environment()})
        if not self.answers(home / "run" / "BackupPC.sock"):
            raise OSError(f"BackupPC does not come up: {(home / 'server.log').read_text()[-1000:]}")

    def answers(self, path, patience=30.0):
        until = time.monotonic() + patience
        while time.monotonic() < until and self.server.poll() is None:
            with socket.socket(socket.AF_UNIX) as probe:
                # It greets; who is gone by then is the end of it.
                if probe.connect_ex(str(path)) == 0 and probe.recv(1):
                    return True
            time.sleep(0.02)
        return False

    def close(self):
        if self.relay:
            self.relay.__exit__()
        dismiss([process for process in (self.server, self.daemon) if process])

    def servers(self):
        return [self.server.pid]

    def clients(self):
        return [self.daemon.pid]

    def wire(self):
        return self.relay

    def init(self):
        return None

    def backup(self, step):
        return f"{self.program} {'-f' if step == 1 else '-i'} {HOST}"

    def restore(self, step):
        (self.place.repo / "pc" / HOST / f"request{step}").write_text(REQUEST.format(host=HOST, number=step - 1))
        return f"{PROGRAMS}/BackupPC_restore {HOST} {HOST} request{step}"

    def landing(self, step):
        return self.place.out


ROWS = [BackupPc]
