"""How drawings shade a figure beside another one's: by how many times that one's it is. Pure."""

from .figures import PART
from .svg import INK, SOFT, wide

# Up to so many times the other's figure: the cell's colour, that of its words, and what it means.
SHADES = ((0.5, "#0b6e69", "#fff", "less than half of {}'s"), (1 / PART, "#a9d6d2", INK, "ahead"), (PART, "#e4e8eb", INK, "level"),
          (1.5, "#f6dcbc", INK, "behind"), (float("inf"), "#e5a765", INK, "behind by more than half"))
LEVEL = 2


def shade(times, level):
    """(colour, that of words on it) of a figure that is so many times another one, or level with it."""
    found = SHADES[LEVEL] if level else next(of for number, of in enumerate(SHADES) if times <= of[0] and number != LEVEL)
    return found[1:3]


def legend(canvas, x, y, other):
    """What the colours mean; `other`: whom a figure is held against."""
    for _, fill, _, said in SHADES:
        words = said.format(other)
        canvas.rect(x, y - 9, 11, 11, fill)
        canvas.text(x + 17, y + 1, words, 11, SOFT)
        x += 17 + wide(words, 11) + 18
