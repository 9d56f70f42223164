"""Drawings as text: a canvas that gathers lines, bars and words, and scales from values to places. Pure."""

import math
from xml.sax.saxutils import escape, quoteattr

FONT = "DejaVu Sans, Verdana, sans-serif"
INK, SOFT, GRID = "#22272c", "#68727c", "#e4e8eb"
# Drumlin; peers that compress and encrypt, that do one of the two, that do neither.
OUR_COLOUR, COLOURS = "#0b6e69", ("#cfd5da", "#aab4bd", "#7c8995")
# An average letter's width in units of its size: what places are reckoned by.
LETTER = 0.60
# The same of words that are long enough to have letters of all sorts.
LETTER_LEAST = 0.55


class Canvas:
    """A drawing of a size in pixels."""

    def __init__(self, width, height):
        self.width, self.height, self.parts = width, height, []

    def rect(self, x, y, width, height, fill, radius=0):
        round_ = f' rx="{radius}"' if radius else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" fill="{fill}"{round_}/>')

    def line(self, x1, y1, x2, y2, stroke=GRID, width=1.0, dash=None):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"{dashed}/>')

    def path(self, points, stroke, width, dash=None):
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        way = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{way}" fill="none" stroke="{stroke}" stroke-width="{width}" stroke-linejoin="round" stroke-linecap="round"{dashed}/>')

    def dot(self, x, y, radius, fill):
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" stroke="#fff" stroke-width="1"/>')

    def text(self, x, y, words, size=12, fill=INK, anchor="start", bold=False, italic=False):
        style = (' font-weight="bold"' if bold else "") + (' font-style="italic"' if italic else "")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"{style}>{escape(words)}</text>')

    def fitted(self, x, y, words, size, fill=INK):
        """Words in one line, smaller where they would leave the drawing."""
        room = self.width - x - 4
        self.text(x, y, words, min(size, int(10 * room / (LETTER_LEAST * len(words))) / 10), fill)

    def said(self, title):
        """The drawing, whole, with a title for those who can't see it."""
        return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}" '
                f'font-family={quoteattr(FONT)} role="img"><title>{escape(title)}</title>\n'
                f'<rect width="{self.width}" height="{self.height}" fill="#fff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def wide(words, size):
    """About how many pixels some words take."""
    return len(words) * size * LETTER


def ticks(most, count=4):
    """Round numbers from 0 to at least the most."""
    if most <= 0:
        return [0, 1]
    step = 10 ** math.floor(math.log10(most / count))
    step = next(step * times for times in (1, 2, 2.5, 5, 10) if step * times * count >= most * 0.999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def powers(least, most):
    """Numbers for a scale that grows by factors: 1, 2 and 5 of each power of ten, from one below the least to one above the most."""
    marks = [factor * 10.0**power for power in range(-6, 13) for factor in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= least * 1.001)
    high = min(mark for mark in marks if mark >= most * 0.999 and mark > low)
    return [mark for mark in marks if low <= mark <= high]


def apart(places, gap, low, high):
    """Moves places as little as needed so that neighbours are a gap apart and all lie between low and high; in their order."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = list(places)
    # Blocks of labels that touch share the mean of what they wanted.
    blocks = []
    for index in order:
        blocks.append([[index], places[index]])
        while len(blocks) > 1:
            (upper, at), (lower, below) = blocks[-2:]
            if at + gap * (len(upper) - 1) / 2 + gap <= below - gap * (len(lower) - 1) / 2:
                break
            both = upper + lower
            blocks[-2:] = [[both, sum(places[i] for i in both) / len(both)]]
    floor = low
    for members, middle in blocks:
        start = max(floor, middle - gap * (len(members) - 1) / 2)
        for number, index in enumerate(members):
            moved[index] = start + gap * number
        floor = start + gap * len(members)
    ceiling = high
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved
