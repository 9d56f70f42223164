"""Bars of one step: a row a tool, a panel a measure; the fastest on top. What has no figure says why."""

from ..stats import median
from .figures import OURS, colour_of, column, conditions
from .svg import COLOURS, GRID, INK, OUR_COLOUR, SOFT, Canvas, wide

ROW, BAR, NAME, GAP, TOP, BOTTOM, WIDTH = 21, 12, 150, 34, 112, 34, 1160
# A bar longer than so many times the middle one is broken off, or the others could not be told apart.
BREAK = 6


def bars(result, part, step, measures, title):
    """The drawing of a step."""
    columns = [(measure, column(result, part, step, measure)) for measure in measures]
    columns = [(measure, figures) for measure, figures in columns if any(f.value is not None for f in figures.values())]
    if not columns:
        return None
    first = columns[0][1]
    order = sorted(first, key=lambda name: (first[name].value is None, first[name].value or 0))
    canvas = Canvas(WIDTH, TOP + ROW * len(order) + BOTTOM)
    canvas.text(24, 34, title, 19, bold=True)
    canvas.fitted(24, 56, conditions(result), 12, SOFT)
    legend(canvas, 24, 80)
    for number, name in enumerate(order):
        y = TOP + ROW * number
        if number % 2 == 0:
            canvas.rect(16, y - 1, WIDTH - 32, ROW, "#f8f9fa")
        canvas.text(24 + NAME - 12, y + 14, name, 12, OUR_COLOUR if name.startswith(OURS) else INK, "end", bold=name == OURS)
    panel = (WIDTH - 48 - NAME - GAP * (len(columns) - 1)) / len(columns)
    for number, (measure, figures) in enumerate(columns):
        draw(canvas, 24 + NAME + number * (panel + GAP), panel, order, measure, figures, result["tools"])
    said = ["Shorter is better."] + ["Whiskers: least and most of the rounds."] * (result["repeat"] > 1)
    said += ["A broken bar is longer than drawn."] * any(broken(figures) for _, figures in columns)
    canvas.text(24, canvas.height - 12, " ".join(said), 10.5, SOFT)
    return canvas.said(f"{title}: " + ", ".join(f"{name} {first[name].said}" for name in order))


def longest(figures):
    """The figure at which bars are broken off, or the most there is."""
    values = [figure.value for figure in figures.values() if figure.value is not None]
    return min(max(values), BREAK * median(values)) if median(values) else max(values)


def broken(figures):
    """Whether a bar of a panel is broken off."""
    return any(figure.value is not None and figure.value > longest(figures) for figure in figures.values())


def draw(canvas, x, width, order, measure, figures, tools):
    """A panel: its bars with their numbers beside them."""
    canvas.text(x, TOP - 10, measure.title + (f" ({measure.unit})" if measure.unit else ""), 12, bold=True)
    cut = longest(figures)
    room = max(wide(figures[name].said, 11) for name in order if figures[name].value is not None) + 14
    length = (width - room) / (cut or 1)
    canvas.line(x, TOP - 2, x, TOP + ROW * len(order), GRID, 1.5)
    for number, name in enumerate(order):
        figure, y = figures[name], TOP + ROW * number + (ROW - BAR) / 2 - 1
        if figure.value is None:
            canvas.text(x + 6, y + 10, figure.status, 11, SOFT, italic=True)
            continue
        end = x + min(figure.value, cut) * length
        fill = OUR_COLOUR if name.startswith(OURS) else COLOURS[colour_of(tools[name])]
        canvas.rect(x, y, max(end - x, 1.5), BAR, fill)
        if figure.value > cut:
            for step in (0, 5):
                canvas.path([(end - 16 + step, y + BAR + 2), (end - 11 + step, y - 2)], "#fff", 2.2)
        elif figure.most > figure.least:
            low, high = x + figure.least * length, x + min(figure.most, cut * 1.02) * length
            canvas.line(low, y + BAR / 2, high, y + BAR / 2, INK, 1)
            for at in (low, high):
                canvas.line(at, y + 3, at, y + BAR - 3, INK, 1)
            end = max(end, high)
        canvas.text(end + 6, y + 10, figure.said, 11, OUR_COLOUR if name.startswith(OURS) else INK, bold=name == OURS)


def legend(canvas, x, y):
    """What the colours mean."""
    for fill, words in ((OUR_COLOUR, "Drumlin (compresses and encrypts)"), (COLOURS[2], "compresses and encrypts"), (COLOURS[1], "one of the two"), (COLOURS[0], "neither")):
        canvas.rect(x, y - 9, 11, 11, fill)
        canvas.text(x + 17, y + 1, words, 11, SOFT)
        x += 17 + wide(words, 11) + 18
