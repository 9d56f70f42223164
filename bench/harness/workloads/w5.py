"""W5: tiny files. 3,000,000 at scale 1, 95 % of them of at most 1 KB; and a part of them behind a layer on which each stat
and each open takes 5 ms, as on a cluster's file system.

A tenth lies in one flat directory, a hundredth in directories of one file each, the others 300 a folder.
"""

import os
from pathlib import Path

from ..delay import Slow
from .base import EPOCH, Workload, in_parallel

FILES = 3_000_000
FOLDER_FILES = 300
SENTENCE = "the quick brown fox jumps over the lazy dog. "
# Of a thousand files so many have 1 to 10 KB, and so many up to 200 KB: the others at most 1 KB.
MIDDLE, LARGE = 45, 5


def contents(rng, size, label):
    """Half text that repeats, half noise."""
    noise = " ".join(f"{rng.getrandbits(32):x}" for _ in range(size // 17 + 2))
    said = f"{label}: " + SENTENCE * (size // 80 + 2)
    return "".join(a + b for a, b in zip(said, noise.ljust(len(said))))[:size]


def fill(job):
    """A folder of so many files, of 20 to 999 bytes or, if `mixed`, of W5's sizes; how many that are."""
    rng, path, files, mixed = job
    path = Path(path)
    path.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        kind = rng.randrange(1000) if mixed else 999
        size = rng.randrange(10_000, 200_000) if kind < LARGE else rng.randrange(1000, 10_000) if kind < LARGE + MIDDLE else rng.randrange(20, 1000)
        file = path / f"file-{number:04}-{rng.randrange(10 ** 6)}.txt"
        file.write_text(contents(rng, size, f"folder {path.name}, file {number}"))
        when = (EPOCH + rng.randrange(10**7)) * 10**9
        os.utime(file, ns=(when, when))
    return files


class W5(Workload):
    name = "W5"
    title = "Tiny files"
    source = "generated from a seed: half of each text that repeats, half noise"

    def make(self, tree):
        files = self.count(FILES, 600)
        flat, alone = files // 10, files // 100
        folders = (files - flat - alone) // FOLDER_FILES
        rest = files - flat - alone - folders * FOLDER_FILES
        jobs = [(self.random("folder", n), tree / f"d{n // 100:04}" / f"e{n % 100:02}", FOLDER_FILES, True) for n in range(folders)]
        jobs.append((self.random("rest"), tree / "rest", rest, True))
        jobs += [(self.random("alone", n), tree / "alone" / f"a{n:06}", 1, True) for n in range(alone)]
        jobs.append((self.random("flat"), tree / "flat", flat, True))
        in_parallel(fill, jobs)


class W5Slow(W5):
    """20,000 of W5's files at scale 1, half of them in a flat directory, half in directories of one file, behind the layer."""

    name = "W5-slow"
    title = "Tiny files on a slow file system: 5 ms a stat and an open"
    source = "generated from a seed, read through a FUSE layer that delays"
    needs = ("gcc", "pkg-config", "fusermount3")
    layer = None

    def make(self, tree):
        half = self.count(10_000, 100)
        jobs = [(self.random("alone", n), tree / "alone" / f"a{n:06}", 1, False) for n in range(half)]
        in_parallel(fill, [*jobs, (self.random("flat"), tree / "flat", half, False)])

    def prepare(self, tree):
        self.layer = Slow(tree, tree.parent / "slow", delay_ms=5)
        return self.layer.mount()

    def helpers(self):
        return [self.layer.process.pid]

    def finish(self):
        if self.layer:
            self.layer.unmount()


WORKLOADS = [W5, W5Slow]
