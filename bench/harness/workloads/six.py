"""The six steps of the burp thesis, on a folder of several trees: first, nothing changed, the contents of one tree scrambled,
new times on one tree, half of the trees moved, half of them deleted. Then each is restored.
"""

import os
import shutil

from .base import Step, Workload, files_below

NAMES = ("first", "no change", "scrambled", "new times", "renamed", "halved")
# Three days after the last time of change that the data have.
LATER = 1_790_000_000
PIECE = 65_536


def trees(top):
    """The trees of a folder, in order."""
    return sorted(path for path in top.iterdir() if path.is_dir())


def scramble(tree, rng):
    """The bytes of each file of the first tree in another order, in pieces, so that no chunk stays as it was."""
    for path in files_below(trees(tree)[0]):
        contents = path.read_bytes()
        halves = [contents[start:start + PIECE] for start in range(0, len(contents), PIECE)]
        rng.shuffle(halves)
        path.write_bytes(b"".join(piece.translate(TURN)[::-1] for piece in halves))


# Each byte is another one, and text is no text any more.
TURN = bytes((byte * 37 + 11) % 256 for byte in range(256))


def new_times(tree, rng):
    """The files of the second tree were touched."""
    for number, path in enumerate(files_below(trees(tree)[1])):
        os.utime(path, ns=((LATER + number) * 10**9, (LATER + number) * 10**9 + rng.randrange(10**9)))


def rename(tree, _):
    """Every other tree is moved into a new folder."""
    moved = trees(tree)[::2]
    (tree / "moved").mkdir()
    for path in moved:
        path.rename(tree / "moved" / path.name)


def halve(tree, _):
    """Of the trees that were not moved, and of those that were, every other one is deleted."""
    stayed = [path for path in trees(tree) if path.name != "moved"]
    for path in stayed[1::2] + trees(tree / "moved")[1::2]:
        shutil.rmtree(path)


class Six(Workload):
    six = True

    def steps(self):
        changes = (None, None, self.scramble, self.new_times, self.rename, self.halve)
        return [Step(name, change) for name, change in zip(NAMES, changes)]

    def restored(self):
        return [6] if self.last_alone else [1, 2, 3, 4, 5, 6]

    scramble, new_times, rename, halve = (staticmethod(change) for change in (scramble, new_times, rename, halve))
