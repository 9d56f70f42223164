"""A Firebird 3 server of its own: settings, security database, port; its one database lies in a tree."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from ..measure import dismiss
from ..wire import free_port, listens

PASSWORD = "masterkey"
SETTINGS = """\
ServerMode = Super
RemoteBindAddress = 127.0.0.1
RemoteServicePort = {port}
RemoteAuxPort = 0
SecurityDatabase = {root}/security3.fdb
DatabaseAccess = Full
TempDirectories = {root}
IpcName = fb{port}
DefaultDbCachePages = 8192
"""


class Firebird:
    """The server, while it is started. What it keeps of its own is in a folder that goes with it."""

    def __init__(self, tree):
        self.database = Path(tree) / "bench.fdb"

    def start(self, new=False):
        self.port, self.root = free_port(), Path(tempfile.mkdtemp(prefix="fb"))
        message = next(Path("/usr/lib").glob("*/firebird/3.0/firebird.msg"), None)
        if not message:
            raise OSError("Firebird 3 is not installed: firebird3.0-server, firebird3.0-utils")
        for name in ("plugins", "intl", "firebird.msg", "plugins.conf"):
            (self.root / name).symlink_to(message.parent / name)
        (self.root / "firebird.conf").write_text(SETTINGS.format(port=self.port, root=self.root))
        (self.root / "databases.conf").write_text(f"security.db = {self.root}/security3.fdb {{\n  RemoteAccess = false\n}}\n")
        self.env = {**os.environ, "FIREBIRD": str(self.root), "FIREBIRD_LOCK": str(self.root), "FIREBIRD_TMP": str(self.root)}
        self.isql(f"create database '{self.root}/security3.fdb';\ncreate user SYSDBA password '{PASSWORD}';\ncommit;\n", "-user", "SYSDBA")
        self.process = subprocess.Popen(["/usr/sbin/firebird"], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if not listens(self.port, 30.0):
            self.stop()
            raise OSError("Firebird does not come up")
        if new:
            self.isql(f"create database '{self.dsn()}' page_size 16384 default character set UTF8;\n", *self.login())
        return self

    def stop(self):
        """Nobody is connected any more, and what was committed is written: force does no harm."""
        dismiss([self.process])
        shutil.rmtree(self.root, ignore_errors=True)

    def login(self):
        return ["-user", "SYSDBA", "-password", PASSWORD]

    def dsn(self, path=None):
        return f"127.0.0.1/{self.port}:{path or self.database}"

    def isql(self, text, *options):
        done = subprocess.run(["isql-fb", "-q", "-b", *options], input=text, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"isql-fb: {(done.stderr or done.stdout)[-1500:]}")
        return done.stdout

    def sql(self, statements):
        """Runs statements on the database."""
        self.isql(statements, *self.login(), self.dsn())

    def ask(self, question, path=None):
        """The numbers that a question is answered with."""
        return re.findall(r"-?\d+\.?\d*", self.isql(question + "\n", *self.login(), self.dsn(path)))

    def dump(self, services=False):
        """The command that writes a dump to its output."""
        login = " ".join(map(shlex.quote, self.login()))
        if services:
            return f"gbak -b -g -se 127.0.0.1/{self.port}:service_mgr {login} {shlex.quote(str(self.database))} stdout"
        return f"gbak -b -g {login} {shlex.quote(self.dsn())} stdout"

    def from_dump(self, stream, question):
        """The answer that a database made from a dump gives."""
        copy = self.root / "copy.fdb"
        login = " ".join(self.login())
        try:
            subprocess.run(f"gbak -c -se 127.0.0.1/{self.port}:service_mgr {login} stdin {copy} < {shlex.quote(str(stream))}",
                           shell=True, env=self.env, check=True, capture_output=True)
            return self.ask(question, copy)
        except (subprocess.CalledProcessError, OSError):
            return None
        finally:
            copy.unlink(missing_ok=True)
