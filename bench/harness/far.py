"""The far side of a line: an OpenSSH server of a tool's own, behind the counted wire.

It listens on this machine alone, with a host key, settings and a home folder of its own below the tool's place, for whoever runs the
harness. The client's keys and settings lie in its `.ssh`. ssh itself looks for them where the account's home is, whatever HOME
says: so a program `ssh` before all others on the PATH tells it of them. Nothing is asked for at a prompt, connections are not
shared.
"""

import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

from .measure import adopt, dismiss
from .wire import Wire, free_port, listens

# What tools call the server.
HOST = "far"
PATIENCE_SECONDS = 30.0
SERVER = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {far}/host_key
AuthorizedKeysFile {ssh}/key.pub
PidFile none
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowTcpForwarding no
X11Forwarding no
PermitUserRC no
PrintMotd no
PrintLastLog no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
SetEnv {variables}
"""
CLIENT = """\
Host {host}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {ssh}/key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {ssh}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
"""
WRAPPER = '#!/bin/sh\nexec {program} -F {ssh}/config "$@"\n'
# sshd wants to be called by its whole path.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def sshd():
    """The server's program, or None."""
    return shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{SBIN}")


def missing():
    """The programs that a line needs and that aren't here."""
    return ["sshd"] * (not sshd()) + [name for name in ("ssh", "ssh-keygen") if not shutil.which(name)]


class Far:
    """A server for the one tool in a place, while it is entered. `place` says how far away it is."""

    def __init__(self, place):
        self.place, self.far, self.ssh, self.bin = place, place.root / "far", place.home / ".ssh", place.home / "bin"
        self.user, self.process, self.wire = pwd.getpwuid(os.geteuid()).pw_name, None, None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def start(self):
        if len(str(self.far).split()) > 1:
            raise OSError(f"{self.far}: settings of ssh take no name with spaces in it: choose another --work")
        home = self.far / "home"
        home.mkdir(parents=True)
        self.ssh.mkdir(mode=0o700)
        self.bin.mkdir()
        for key in (self.far / "host_key", self.ssh / "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key.name, "-f", key], check=True, capture_output=True)
        port = free_port()
        variables = " ".join(f'"{name}={value}"' for name, value in (("HOME", home), ("PATH", os.environ["PATH"]), ("LC_ALL", "C.UTF-8")))
        (self.far / "sshd_config").write_text(SERVER.format(port=port, far=self.far, ssh=self.ssh, variables=variables))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with open(self.far / "log", "wb") as log:
            # What a session leaves behind is the server's, not the harness's.
            self.process = subprocess.Popen([sshd(), "-D", "-e", "-f", self.far / "sshd_config"], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=adopt)
        if not listens(port, PATIENCE_SECONDS):
            raise OSError(f"sshd does not come up: {self.said()}")
        self.wire = Wire(port, self.far / "wire", self.place.rtt_ms, self.place.rate).__enter__()
        known = (self.far / "host_key.pub").read_text().split()[:2]
        (self.ssh / "known_hosts").write_text(f"[127.0.0.1]:{self.wire.port} {' '.join(known)}\n")
        (self.ssh / "config").write_text(CLIENT.format(host=HOST, port=self.wire.port, user=self.user, ssh=self.ssh))
        for name in ("ssh", "sftp", "scp"):
            if program := shutil.which(name):
                (self.bin / name).write_text(WRAPPER.format(program=program, ssh=self.ssh))
                (self.bin / name).chmod(0o755)
        done = subprocess.run([self.bin / "ssh", HOST, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)
        if done.returncode:
            raise OSError(f"no login at this machine's own sshd: {done.stderr.strip()}\n{self.said()}")

    def __exit__(self, *_):
        if self.wire:
            self.wire.__exit__()
        if self.process:
            dismiss([self.process])

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        return (self.far / "log").read_text(errors="replace")[-1000:]

    def environment(self):
        """What a tool needs to find the server."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "SSH_AUTH_SOCK": ""}

    def command(self, command):
        """A command of the shell that does another one over there."""
        return f"ssh {HOST} {shlex.quote(command)}"
