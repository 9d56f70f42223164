"""What a workload is: data that are made once for a seed and a scale, and the steps that a tool is taken through."""

import hashlib
import json
import os
import random
import shutil
import tomllib
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from typing import Callable

from ..measure import end_at_once
from ..weigh import weigh

PINNED = Path(__file__).with_name("pinned.toml")
# Made files get times of change from this day on, in the past: 2026-01-01.
EPOCH = 1767225600


def pinned(section):
    """The versions of what comes from registries."""
    return tomllib.loads(PINNED.read_text())[section]


@dataclass
class Step:
    """A backup, and what happens to the tree before it."""

    name: str
    change: Callable | None = None  # (tree, random numbers) -> None


class Workload:
    """One of W1 to W8, at a scale and from a seed."""

    # Its name, its title for people, where it comes from; the programs that making it needs.
    name = title = source = ""
    needs = ()
    # Whether the steps' names are the six of the thesis: the report draws lines over them.
    six = False
    # Of its six states the last alone is restored.
    last_alone = False
    # A stream of a command instead of a tree.
    stream = False
    # The folder that the user named, of use to 'tree' alone.
    given = None
    # The workload whose data it takes, if not its own.
    data_of = None
    # Whether a change made twice makes the same bytes.
    same = True

    def __init__(self, scale=1.0, seed=1):
        self.scale, self.seed = scale, seed

    def random(self, *of):
        """Random numbers that depend on the seed and on what they are for."""
        return random.Random("/".join(map(str, (self.name, self.seed, *of))))

    def count(self, at_one, least=1):
        """A number that grows with the scale."""
        return max(least, round(at_one * self.scale))

    def steps(self):
        return [Step("first"), Step("no change")]

    def restored(self):
        """The numbers of the steps that are restored afterwards."""
        return [len(self.steps())]

    def make(self, tree):
        """Makes the data in an empty folder; what is to be told about them besides."""
        raise NotImplementedError

    def home(self, folder):
        """Where its data lie."""
        return Path(folder) / f"{self.data_of or self.name}-{self.scale:g}-{self.seed}"

    def data(self, folder):
        """The folder with the data, made now if they aren't there yet, and their description. A making that was stopped
        is begun anew, and what other code or pins have made is made anew."""
        home, made_by = self.home(folder), digest_of(makers())
        tree, told = home / "tree", home / "told.json"
        if not told.exists() or json.loads(told.read_text()).get("made_by") != made_by:
            shutil.rmtree(home, ignore_errors=True)
            tree.mkdir(parents=True)
            more = self.make(tree) or {}
            weighed = weigh([tree])
            told.write_text(json.dumps({**weighed, **more, "made_by": made_by}))
        return tree, json.loads(told.read_text())

    def prepare(self, tree):
        """After the data are in place: what must run while they are saved (a server, a layer); the tree to save."""
        return tree

    def finish(self):
        """Ends that."""

    def helpers(self):
        """Processes of the workload itself, which are not measured."""
        return []

    @classmethod
    def missing(cls):
        return [program for program in cls.needs if not shutil.which(program)]

    def dump(self, tree):
        """Of a stream: the command that writes it."""
        raise NotImplementedError

    def fingerprint(self):
        """Of a stream: what a dump of this moment must give back."""
        raise NotImplementedError

    def sound(self, stream, expected):
        """Of a stream: whether a dump that was given back does."""
        raise NotImplementedError


def makers():
    """All that decides which data are made: the code of all workloads, and what they pin."""
    folder = Path(__file__).parent
    return sorted(path for pattern in ("*.py", "*.toml", "crates/Cargo.*") for path in folder.glob(pattern))


def digest_of(paths):
    """The first digits of a SHA-256 over some files."""
    found = hashlib.sha256()
    for path in paths:
        contents = path.read_bytes()
        found.update(f"{path.name} {len(contents)}\n".encode() + contents)
    return found.hexdigest()[:16]


def in_parallel(function, jobs):
    """Does all jobs on all cores, in any order; each draws its random numbers by itself."""
    jobs = list(jobs)
    with Pool(initializer=end_at_once) as pool:
        done = sum(pool.imap_unordered(function, jobs, max(1, len(jobs) // 200)))
        # They go by themselves: whom a signal meets while he waits for the next job may wait for good, and whoever ends him with him.
        pool.close()
        pool.join()
    return done


def dated(path, rng):
    """Gives a file a time of change within half a year from the first day on, to the nanosecond."""
    when = EPOCH * 10**9 + rng.randrange(180 * 86400 * 10**9)
    os.utime(path, ns=(when, when))


def files_below(tree):
    """All regular files below a tree, in the order of their names."""
    found = []
    for folder, folders, files in os.walk(tree):
        folders.sort()
        found += [Path(folder) / name for name in sorted(files) if not os.path.islink(os.path.join(folder, name))]
    return found


def same_times(tree, since, when):
    """Gives what a change has just written one time, in seconds: the same for all tools."""
    for folder, _, files in os.walk(tree, topdown=False):
        for path in (*(os.path.join(folder, name) for name in files), folder):
            if os.lstat(path).st_mtime >= since and not os.path.islink(path):
                os.utime(path, (when, when))
