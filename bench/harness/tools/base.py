"""What an adapter says of a tool: how it is called, and what it does by itself.

Commands are the shell's. All that a tool keeps lies below its place: repository, settings, caches, temporary files.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

from ..far import HOST, Far
from ..machine import first_line
from ..measure import environment

# How long what is asked beside the measures may take: a line that broke would be waited for all night.
TOLD_SECONDS = 600


class Place:
    """A tool's room on a ground, and the tree that it saves."""

    def __init__(self, root, source, rtt_ms=0.0, rate=0, far=False):
        self.rtt_ms, self.rate = rtt_ms, rate  # of the wire to a server
        # Whether repositories are on a server; that server, once it is there.
        self.is_far, self.server = far, None
        self.root, self.source = Path(root), Path(source)
        self.repo, self.home, self.out, self.tmp = (self.root / name for name in ("repository", "home", "out", "tmp"))

    def make(self):
        """Makes the folders that every tool may count on: all but the repository."""
        for path in (self.home, self.out, self.tmp):
            path.mkdir(parents=True, exist_ok=True)


class Tool:
    """A row of the tables: a tool as it comes, or a variant of it. Steps are numbered from 1."""

    # The row's name, the program that must be there, others that must be there besides.
    name = program = ""
    needs = ()
    # What it does with its repository.
    compresses = encrypts = False
    # Whether it keeps once what files, or states of a file, have in common, wherever it lies in them.
    deduplicates = False
    # The row that this one is a variant of, with more of that.
    of = None
    # Whether it is run when no tool is named; whether it saves trees, streams.
    default, trees, streams = True, True, False
    # Its place in the tables.
    order = 2
    # Whether it can keep its repository on another machine, by ssh.
    far = False
    # The parts (steps, restores) of which its commands are the server's, who asks the client's daemons.
    pulls = ()
    # The statuses that are no failure.
    fine = (0,)
    # What a reader must know of its figures.
    note = ""

    def __init__(self, place):
        self.place = place
        self.source, self.repo, self.home, self.out = (shlex.quote(str(p)) for p in (place.source, place.repo, place.home, place.out))

    @classmethod
    def missing(cls):
        return [program for program in (cls.program, *cls.needs) if not shutil.which(program)]

    @classmethod
    def binary(cls):
        """Where the program is."""
        return shutil.which(cls.program)

    @classmethod
    def reaches(cls):
        """Whether its repository can be on another machine: by ssh, or on a server of its own."""
        return cls.far or cls.servers is not Tool.servers

    @classmethod
    def version(cls):
        """What the tool says of itself; None if it says nothing."""
        return first_line(f"{cls.program} --version")

    def environment(self):
        home, tmp = str(self.place.home), str(self.place.tmp)
        return {"HOME": home, "TMPDIR": tmp, "XDG_CACHE_HOME": f"{home}/cache", "XDG_CONFIG_HOME": f"{home}/config",
                "XDG_DATA_HOME": f"{home}/data", "XDG_STATE_HOME": f"{home}/state", "LC_ALL": "C.UTF-8",
                **(self.place.server.environment() if self.place.server else {}), **self.settings()}

    def settings(self):
        """Its own variables."""
        return {}

    def begin(self):
        """Starts the server that is far away, if that is asked for, and what is the tool's own."""
        if self.place.is_far and self.far:
            self.place.server = Far(self.place).__enter__()
        self.start()

    def end(self):
        """Ends all that."""
        try:
            self.close()
        finally:
            if self.place.server:
                self.place.server.__exit__()

    def told(self, command):
        """What a command says, asked outside of all measures: what a user would read off a list, and write down. TimeoutExpired if it
        doesn't end."""
        ran = subprocess.run(command, shell=True, env={**environment(), **self.environment()}, check=True, capture_output=True, text=True, timeout=TOLD_SECONDS)
        return ran.stdout.split()

    def anywhere(self, command, *folders):
        """A command as it would be given on any machine: without the folders of this one."""
        for place, stands in [(f"{self.place.root}/", ""), *((f"{folder}/", "") for folder in folders), (self.binary(), self.program)]:
            command = command.replace(place, stands) if place else command
        return command

    def there(self, form, near=None):
        """What a tool calls its repository: `near`, or its folder; far away, as the form with its `{host}` and `{path}`."""
        return form.format(host=HOST, path=self.place.repo) if self.place.server else str(self.place.repo) if near is None else near

    def start(self):
        """Writes settings, starts servers: what an administrator does once, outside of all measures."""

    def close(self):
        """Ends what `start` started, and what the tool left behind that must be asked to go."""

    def servers(self):
        """Processes that are measured apart from the client."""
        return [self.place.server.pid] if self.place.server else []

    def clients(self):
        """Processes that `start` started and that are the client's: daemons that a server asks for files."""
        return []

    def wire(self):
        """The wire between client and server, or None."""
        return self.place.server and self.place.server.wire

    def init(self):
        """Makes the repository: a part of the first backup. None if there is nothing to do."""
        return self.over(f"mkdir -p {self.repo}")

    def over(self, command):
        """A command of the shell, done where the repository is."""
        return self.place.server.command(command) if self.place.server else command

    def backup(self, step):
        """Saves the tree, including all that must be done before the backup is worth as much as any other."""
        raise NotImplementedError

    def restore(self, step):
        """Gives back the tree as it was at a step, below `out`."""
        raise NotImplementedError

    def landing(self, step):
        """Where the tree is after that. By default at its whole path below `out`."""
        return self.place.out / str(self.place.source).lstrip("/")

    def stream(self, step, command):
        """Saves what a command writes."""
        raise NotImplementedError

    def unstream(self, step):
        """Gives that back as the file `out/stream`."""
        raise NotImplementedError

    def keep(self):
        """The commands of keeping backups, for those that have them: check, check data, forget and prune, prune. See
        `bench/keep`: six backups have been made, all but the last three are forgotten."""
        return None

    def weighed(self):
        """What counts as its repository, and what it keeps besides (caches, catalogues)."""
        return [self.place.repo], [self.place.home]


def piped(*commands):
    """A pipe that fails when a part of it does."""
    return "set -o pipefail; " + " | ".join(commands)


def which(*candidates):
    """The first of some programs that is there."""
    return next((str(c) for c in candidates if c and (shutil.which(c) or os.access(c, os.X_OK))), None)
