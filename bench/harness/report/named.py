"""Beside the programs that are most asked about, one by one: a page with a table for each figure, and a drawing. Pure."""

from .. import results
from .figures import LEVELS, MEMORY, OURS, REPOSITORY, SECONDS, SLOWER, are_level, column, number, order, rounds, scale
from .shades import legend, shade
from .svg import INK, SOFT, Canvas

PAGE = "named"
TITLE = "Beside restic, borg, kopia, rustic and bupstash"
# Each as it compresses and encrypts.
NAMED = ("restic", "borg", "kopia-zstd", "rustic", "bupstash")
# A table each: title, heading in the drawing, part, which of its steps, measure.
SHOWN = (("First backup, s", "first", "steps", 0, SECONDS), ("Nothing changed, s", "no change", "steps", 1, SECONDS), ("Restore, s", "restore", "restores", -1, SECONDS),
         ("Peak memory of the first backup, MB", "memory", "steps", 0, MEMORY), ("Repository after it, MB", "size", "steps", 0, REPOSITORY))
TOP, ROW, LEFT, CELL, GAP, BOTTOM = 124, 30, 152, 50, 10, 14


def chosen(all_results):
    """Of each workload, hot and here, the largest of those beside most of them."""
    here = [result for result in order(all_results) if not results.line(result)[0] and result["cache"] == "hot"]
    there = lambda result: sum(name in result["tools"] for name in NAMED)
    best = {}
    for result in here:
        name = result["workload"]
        if there(result) > (there(best[name]) if name in best else 0):
            best[name] = result
    return list(best.values())


def peers(of):
    """Those of them that ran."""
    return [name for name in NAMED if any(name in result["tools"] for result in of)]


def versions(of):
    """Which version of each, in words; of several, too, which of them ran where."""
    said = []
    for name in peers(of):
        told = {}
        for result in (result for result in of if name in result["tools"]):
            version = (result["tools"][name]["version"] or "").split(",")[0].removeprefix(f"{name.split('-')[0]} ")
            told.setdefault(version or "not told", []).append(result["workload"])
        where = lambda names: f" ({', '.join(names)})" * (len(told) > 1)
        said.append(f"{name}: {' and '.join(version + where(names) for version, names in told.items())}")
    return "; ".join(said)


def against(result, figures, name):
    """(how many times a peer's figure Drumlin's is, whether they are level); None where one of them has none."""
    ours, theirs = figures.get(OURS), figures.get(name)
    if not (ours and theirs and ours.value and theirs.value):
        return None
    return ours.value / theirs.value, are_level(result, ours, theirs)


def table(of, part, step, measure):
    """A row a result: Drumlin's figure, and each peer's, with how many times Drumlin's it is."""
    names = [name for name in (SLOWER, *peers(of)) if any(name in result["tools"] for result in of)]
    rows = ["| | " + " | ".join(["**drumlin**", *names]) + " |", "|---|" + "---:|" * (1 + len(names))]
    for result in of:
        figures = column(result, part, result[part][step], measure)
        cells = [figures[OURS].said if OURS in figures else "–"]
        for name in names:
            found = against(result, figures, name)
            cells.append(f"{figures[name].said} ({'≈ ' * found[1]}{number(1 / found[0])} ×)" if found else figures[name].said if name in figures else "–")
        rows.append(f"| {result['workload']} at {scale(result)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def page(all_results):
    """All of it, in Markdown; None where none of them ran."""
    of = chosen(all_results)
    if not of:
        return None
    runs = "; ".join(f"{result['workload']} at {scale(result)}: {rounds(result)}, {result['date'][:10]}" for result in of)
    parts = [f"# {TITLE}", "Made by `bench/report` from `bench/results`; not to be edited. [How to read this](README.md).",
             f"Of each workload the largest run beside most of them, with hot caches: {runs}. "
             f"Behind each figure, how many times Drumlin's it is: above 1 Drumlin is ahead; ≈: level ({LEVELS}). "
             f"Drumlin and bupstash have a key in a file, as they come; the others derive theirs from a passphrase in each command, and so does Drumlin in the row *{SLOWER}*. [Results](results.md) has each run's page, with all other programs.",
             f"Versions: {versions(of)}.", f"![{TITLE}](charts/glance-named.svg)"]
    parts += [f"## {title}\n\n{table(of, part, step, measure)}" for title, _, part, step, measure in SHOWN]
    return "\n\n".join(parts) + "\n"


def charts(all_results):
    """(name, drawing), if any of them ran."""
    of = chosen(all_results)
    return [("glance-named", drawing(of))] if of else []


def drawing(of):
    """A row a result, five cells a peer: how many times its figure Drumlin's is."""
    names = peers(of)
    panel = CELL * len(SHOWN)
    canvas = Canvas(max(LEFT + (panel + GAP) * len(names), 640), TOP + ROW * len(of) + BOTTOM)
    canvas.text(24, 34, f"Drumlin beside {', '.join(names)}", 19, bold=True)
    canvas.fitted(24, 56, "How many times the other program's time, memory and size Drumlin's are. Less is better: below 1 Drumlin is ahead.", 12, SOFT)
    legend(canvas, 24, 80, "the other")
    for row, result in enumerate(of):
        y = TOP + ROW * row
        canvas.text(24, y + 13, f"{result['workload']} at {scale(result)}", 12, INK, bold=True)
        canvas.text(24, y + 24, rounds(result).split(" of ")[0], 9.5, SOFT)
        for at, name in enumerate(names):
            for place, (_, _, part, step, measure) in enumerate(SHOWN):
                figures = column(result, part, result[part][step], measure)
                said = figures[name].said if name in figures else "–"
                cell(canvas, LEFT + at * (panel + GAP) + place * CELL, y, against(result, figures, name), said)
    for at, name in enumerate(names):
        left = LEFT + at * (panel + GAP)
        canvas.text(left, TOP - 22, name, 12, INK, bold=True)
        for place, (_, heading, *_) in enumerate(SHOWN):
            canvas.text(left + place * CELL + 2, TOP - 7, heading, 8.5, SOFT)
    return canvas.said(f"Drumlin beside {', '.join(names)}: time, memory and size")


def cell(canvas, x, y, found, said):
    """How many times the other's figure Drumlin's is, on its shade; where there is none, the first word of what became of the other."""
    if found is None:
        canvas.rect(x, y, CELL - 2, ROW - 2, "#f8f9fa")
        canvas.text(x + 4, y + 18, said.split()[0], 9.5, SOFT)
        return
    fill, ink = shade(*found)
    canvas.rect(x, y, CELL - 2, ROW - 2, fill)
    canvas.text(x + 4, y + 18, f"{found[0]:.2f}" if found[0] >= 0.005 else f"{found[0]:.3f}", 12, ink, bold=True)
