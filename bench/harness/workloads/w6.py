"""W6: consecutive releases of one large project, a tree each, as a module proxy serves them: 32 at scale 1, 319,123 entries
in all, instead of the thesis's 59 of Linux. At smaller scales fewer of them, the first in the list, and of each the same part,
in whole directories, but not less than six."""

import hashlib
import os
import shutil
from pathlib import Path

from .base import dated, files_below, pinned
from .registry import go_module
from .six import Six

LEAST = 6


class W6(Six):
    name = "W6"
    title = "Consecutive releases of one project: many small files"
    needs = ("go",)

    def __init__(self, scale=1.0, seed=1):
        super().__init__(scale, seed)
        self.of = pinned("W6")
        self.source = f"{self.of['module']}, {len(self.releases())} releases, by go mod download"

    def releases(self):
        wanted = max(LEAST, round(len(self.of["versions"]) * self.scale))
        return self.of["versions"][:wanted]

    def part(self):
        """What part of each release is taken."""
        return self.scale * len(self.of["versions"]) / len(self.releases())

    def make(self, tree):
        cache, part = tree.parent.parent / "fetched", self.part()
        for number, version in enumerate(self.releases()):
            source = go_module(cache, self.of["module"], version)
            copy_part(source, tree / f"release-{number:02}", part)
        for number, path in enumerate(files_below(tree)):
            dated(path, self.random("time", number))  # else they would have the moment at which they were fetched
        return {"module": self.of["module"], "versions": self.releases(), "part": part}


def copy_part(source, target, part):
    """Copies the directories whose names' hashes fall into the part, files only, and what leads to them."""
    for folder, folders, files in os.walk(source):
        folders.sort()
        name = os.path.relpath(folder, source)
        if files and chance(name) < part:
            to = Path(target) / name
            to.mkdir(parents=True, exist_ok=True)
            for file in sorted(files):
                shutil.copy2(os.path.join(folder, file), to / file)
                os.chmod(to / file, 0o644)


def chance(name):
    """A number from 0 to 1 that hangs on a name alone."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest()) / 2**32


WORKLOADS = [W6]
