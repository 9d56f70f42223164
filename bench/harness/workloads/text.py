"""Text from a seed: words as frequent as in a language, in sentences and lines. zstd makes 40 % of it, as of prose."""

import random
from array import array

SYLLABLES = [c + v + e for c in ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t", "tr", "w", "")
             for v in ("a", "e", "i", "o", "u", "ea", "ou") for e in ("", "n", "r", "s", "t", "l")]
WORDS = 20_000


def _table():
    """65,536 words with what follows them, the k-th as often as 1 in k."""
    rng = random.Random("words")
    words = []
    for number in range(WORDS):
        words.append("".join(rng.choices(SYLLABLES, k=1 + (number > 200) + (number > 3000) * rng.randrange(2))))
    table = rng.choices(words, weights=[1 / (k + 3) for k in range(WORDS)], k=1 << 16)
    ends = rng.choices((" ", "\n", ", ", ". ", ".\n", ".\n\n"), weights=(78, 8, 6, 5, 2, 1), k=1 << 16)
    return [word + end for word, end in zip(table, ends)]


TABLE = _table()


def text(rng, size):
    """So many characters of text, plain ASCII."""
    parts, have = [], 0
    while have < size:
        piece = "".join(map(TABLE.__getitem__, array("H", rng.randbytes(2 * ((size - have) // 7 + 32)))))
        parts.append(piece)
        have += len(piece)
    return "".join(parts)[:size]


def word(rng):
    """One word, without what follows it."""
    return TABLE[rng.randrange(1 << 16)].strip(" ,.\n")
