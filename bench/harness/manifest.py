"""What a tree holds, written down, so that what a tool gives back can be held against it after the tree has changed.

A manifest has a line an entry, in the order of the entries' paths, so that two are compared in one go and little memory.
"""

import hashlib
import os
from concurrent.futures import ProcessPoolExecutor

from .measure import end_at_once

# A tree is read in so many parts at least, if it has so many folders in its two uppermost levels, by as many processes as there are processors.
PARTS_LEAST = 16
# Of so many parts the lines are kept at once, until they are asked for.
PARTS_AT_ONCE = 64


def lines(tree):
    """(path, contents, metadata) of each entry below a tree, in order; contents: type, size and hash, or a link's target."""
    parts = parted(os.fsencode(tree))
    if len(parts) < PARTS_LEAST:
        for part in parts:
            yield from below(*part)
        return
    # Which says so where one of its processes is gone. What this one does when it is to end is none of theirs.
    with ProcessPoolExecutor(initializer=end_at_once) as pool:
        for first in range(0, len(parts), PARTS_AT_ONCE):
            for found in pool.map(listed, parts[first:first + PARTS_AT_ONCE]):
                yield from found


def parted(tree):
    """(path, names below the tree, whether all below it belongs to it) of what a tree is to be read by, in order."""
    parts = [(tree, (), True)]
    for _ in range(2):
        if len(parts) >= PARTS_LEAST:
            break
        finer = []
        for path, names, whole in parts:
            inner = sorted(os.listdir(path)) if whole and os.path.isdir(path) and not os.path.islink(path) else []
            finer += [(path, names, whole and not inner), *((os.path.join(path, name), (*names, name), True) for name in inner)]
        parts = finer
    return parts


def listed(part):
    return list(below(*part))


def below(path, names, whole):
    """The lines of an entry, and of all below it, if that is wanted."""
    todo = [(path, names)]
    while todo:
        folder, names = todo.pop()
        stat = os.lstat(folder)
        kind = stat.st_mode & 0o170000
        if kind == 0o040000:
            what = b"d"
            if whole:
                todo += [(os.path.join(folder, name), (*names, name)) for name in sorted(os.listdir(folder), reverse=True)]
        elif kind == 0o100000:
            what = b"f %d %s" % (stat.st_size, digest(folder))
        elif kind == 0o120000:
            what = b"l " + os.readlink(folder)
        else:
            what = b"o %o %d" % (kind, stat.st_rdev)
        if names:  # how the top itself lands is the tool's affair
            meta = b"%o %d %d %d" % (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid, stat.st_mtime_ns)
            yield b"/".join(names), what, b"" if kind == 0o120000 else meta


def digest(path):
    hasher = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(1 << 20):
            hasher.update(piece)
    return hasher.hexdigest().encode()


def escape(text):
    return text.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\0", b"\\0")


def write(tree, file):
    """Writes a tree down."""
    with open(file, "wb") as out:
        for line in lines(tree):
            out.write(b"\0".join(map(escape, line)) + b"\n")


def read(file):
    with open(file, "rb") as lines_:
        for line in lines_:
            yield tuple(line[:-1].split(b"\0"))


def compare(file, tree):
    """How a tree differs from what was written down: entries that are missing, new or have other contents (`wrong`, the
    path of the first of them in `first`), and entries with another mode, owner or time of change (`metadata`)."""
    result = {"entries": 0, "wrong": 0, "first": None, "metadata": 0}
    written, there = read(file), (tuple(map(escape, line)) for line in lines(tree))
    old, new = next(written, None), next(there, None)
    while old or new:
        a, b = (line and line[0].split(b"/") for line in (old, new))
        in_old, in_new = new is None or (old is not None and a <= b), old is None or (new is not None and b <= a)
        wrong = not (in_old and in_new and old[1] == new[1])
        if wrong:
            result["wrong"] += 1
            result["first"] = result["first"] or (old if in_old else new)[0].decode(errors="replace")
        else:
            result["metadata"] += old[2] != new[2]
        result["entries"] += in_old and in_new
        if in_old:
            old = next(written, None)
        if in_new:
            new = next(there, None)
    return result
