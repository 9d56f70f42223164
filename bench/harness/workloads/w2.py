"""W2: a person's files. 38,499 files in 4,769 directories, 12 GB, 13 % of them exact duplicates, at scale 1, as
storeBackup's author had: office documents, pictures and music, archives, programs, text.
"""

import zlib

from .base import Workload, dated, in_parallel
from .text import text, word

FILES, FOLDERS, DUPLICATES = 38_499, 4_769, 5_038
# Kind, suffixes, share of the files, median size, spread, most.
KINDS = [
    ("text", ("txt", "html", "csv", "ini", "log"), 0.40, 4_000, 1.6, 20_000_000),
    ("office", ("odt", "docx", "pdf", "xlsx"), 0.22, 70_000, 1.3, 30_000_000),
    ("media", ("jpg", "png", "mp3", "mp4"), 0.26, 420_000, 1.15, 300_000_000),
    ("program", ("exe", "dll", "so", "bin"), 0.09, 90_000, 1.4, 40_000_000),
    ("archive", ("zip", "tar.gz", "iso"), 0.03, 700_000, 1.5, 500_000_000),
]
PIECE = 1 << 20


def program(rng, size):
    """Bytes as programs have them: runs of instructions that come again with other addresses, tables, zeros."""
    words = [rng.randbytes(rng.randrange(3, 16)) for _ in range(600)]
    made, have = [], 0
    while have < size:
        kind = rng.random()
        piece = b"".join(rng.choices(words, k=200)) if kind < 0.55 else rng.randbytes(900) if kind < 0.8 else bytes(rng.randrange(2000))
        made.append(piece)
        have += len(piece)
    return b"".join(made)[:size]


def contents(kind, rng, size):
    """A file's bytes, in pieces."""
    while size > 0:
        piece = min(size, PIECE)
        if kind == "text":
            yield text(rng, piece).encode()
        elif kind == "program":
            yield program(rng, piece)
        elif kind == "office":
            # A zip of XML: some of it stored, most of it deflated.
            made = zlib.compress(text(rng, piece * 2).encode(), 6)
            yield (b"PK\3\4" + made)[:piece].ljust(piece, b"\0")
        else:
            yield rng.randbytes(piece)
        size -= piece


def put(job):
    """Writes one file; of a duplicate, the bytes of another."""
    workload, path, number, like = job
    rng = workload.random("file", like)
    which = rng.random()
    for kind, suffixes, share, median, sigma, most in KINDS:
        if which < share:
            break
        which -= share
    size = int(min(most, median * pow(2.718281828, rng.gauss(0, sigma))))
    suffix = rng.choice(suffixes)
    own = workload.random("name", number)
    path = path / f"{word(own)} {word(own)} {number}.{suffix}"
    with open(path, "wb") as file:
        for piece in contents(kind, rng, size):
            file.write(piece)
    dated(path, own)
    return 1


class W2(Workload):
    name = "W2"
    title = "A person's files, 13 % of them duplicates"
    source = "generated from a seed: text, office documents, media, programs, archives"

    def make(self, tree):
        rng = self.random("shape")
        folders = [tree]
        for number in range(self.count(FOLDERS) - 1):
            parent = rng.choice(folders)
            if len(parent.parts) - len(tree.parts) > 8:
                parent = tree
            folders.append(parent / f"{word(rng)} {number}")
            folders[-1].mkdir()
        files, again = self.count(FILES), self.count(DUPLICATES, 0)
        jobs = [(self, rng.choice(folders), number, number if number < files - again else rng.randrange(files - again)) for number in range(files)]
        in_parallel(put, jobs)
        return {"duplicates": again}


WORKLOADS = [W2]
