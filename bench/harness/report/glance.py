"""At a glance: how often Drumlin is ahead, level or behind, and a drawing with a cell for each run and figure. Pure."""

from .. import results
from .figures import BUSY, CIRCLES, DOWN, LEVELS, MEMORY, OURS, PART, REPOSITORY, SECONDS, UP, against, column, distance, headings, is_busy, largest, rounds, scale
from .svg import GRID, INK, SOFT, Canvas, wide

# What is counted and drawn: of repositories here, and of those over a line.
MEASURES = {"seconds": SECONDS, "memory": MEMORY, "repository": REPOSITORY, "to the server": UP, "from the server": DOWN}
# A cell each: heading, part, which of its steps, measure.
SHOWN = (("first, s", "steps", 0, SECONDS), ("no change, s", "steps", 1, SECONDS), ("restore, s", "restores", -1, SECONDS))
SHOWN_HERE = (*SHOWN, ("first, RAM", "steps", 0, MEMORY), ("restore, RAM", "restores", -1, MEMORY), ("repository", "steps", 0, REPOSITORY))
SHOWN_FAR = (*SHOWN, ("first, RAM", "steps", 0, MEMORY), ("first, sent", "steps", 0, UP), ("restore, fetched", "restores", -1, DOWN))
# Up to so many times the best peer's figure: the cell's colour, that of its words, and what it means.
SHADES = ((0.5, "#0b6e69", "#fff", "less than half of the best"), (1 / PART, "#a9d6d2", INK, "ahead"), (PART, "#e4e8eb", INK, "level"),
          (1.5, "#f6dcbc", INK, "behind"), (float("inf"), "#e5a765", INK, "behind by more than half"))
LEVEL = 2
ROW, TOP, BOTTOM, LEFT, CELL, GAP = 34, 132, 34, 238, 80, 18


def counts(all_results):
    """Rows (measure, (ahead, level, behind) of each circle): over all columns of some results in which both have a figure."""
    rows = []
    for name, measure in MEASURES.items():
        found = [[0, 0, 0] for _ in CIRCLES]
        for result in all_results:
            for _, part, step in headings(result):
                if measure is REPOSITORY and part == "restores":
                    continue
                for number, best in enumerate(against(result, column(result, part, step, measure))):
                    if best:
                        found[number][1 if best.level else 0 if best.times < 1 else 2] += 1
        if any(map(any, found)):
            rows.append((name, [tuple(of) for of in found]))
    return rows


def table(title, all_results):
    """The counts, in Markdown."""
    text = f"| {title} | " + " | ".join(f"beside the {name}" for name, _ in CIRCLES) + " |\n|---" + "|---:" * len(CIRCLES) + "|\n"
    return text + "".join(f"| {name} | " + " | ".join(" / ".join(map(str, of)) for of in by_circle) + " |\n" for name, by_circle in counts(all_results))


def split(all_results):
    """(those here, those over a line)."""
    far = lambda result: results.line(result)[0]
    return [result for result in all_results if not far(result)], [result for result in all_results if far(result)]


def charts(all_results):
    """(name, drawing) of both drawings, of what there is."""
    here, far = split(all_results)
    made = (("glance-here", here, SHOWN_HERE, "Repositories on this machine"), ("glance-far", far, SHOWN_FAR, "Repositories over a line"))
    return [(name, drawing(of, shown, title)) for name, of, shown, title in made if of]


def section(all_results):
    """What stands on top of the results."""
    here, far = split(all_results)
    parts = ["## At a glance", "In how many columns (each step of each page; of repositories here the largest page of a workload beside many programs, with hot and with cold caches) Drumlin is ahead, "
             f"level ({LEVELS}) and behind:"]
    parts += [table(title, largest(of)[0]).strip() for title, of in (("repositories here", here), ("repositories over a line", far)) if of]
    parts += [f"![At a glance](charts/{name}.svg)" for name, _ in charts(all_results)]
    parts.append("Where others are ahead, by how much and why: [where others are first](others-first.md).")
    return "\n\n".join(parts) + "\n"


def drawing(all_results, shown, title):
    """A row a run, a cell a figure, once beside all peers and once beside those that do the same."""
    panels = (CIRCLES[0], CIRCLES[-1])
    panel = CELL * len(shown)
    first, rest = largest(all_results)
    all_results = first + rest
    heights = [TOP + ROW * number + GAP * (number >= len(first)) for number in range(len(all_results))]
    canvas = Canvas(LEFT + (panel + GAP) * len(panels) + 6, heights[-1] + ROW + BOTTOM)
    canvas.text(24, 34, title, 19, bold=True)
    canvas.text(24, 56, "In each cell: how many times the best peer's figure Drumlin's is, and who that is. Less is better: below 1 Drumlin is ahead.", 12, SOFT)
    legend(canvas, 24, 80)
    for y, result in zip(heights, all_results):
        name = f"{result['workload']} at {scale(result)}" + ", cold" * (result["cache"] == "cold")
        canvas.text(24, y + 14, name, 12, INK, bold=True)
        canvas.text(28 + wide(name, 12.5), y + 14, ", ".join([rounds(result).split(" of ")[0]] + ["busy"] * is_busy(result)), 9.5, SOFT)
        canvas.text(24, y + 27, distance(result).removeprefix("far, ") or short(result["title"]), 10, SOFT)
    for at, (said, do) in enumerate(panels):
        left = LEFT + at * (panel + GAP)
        canvas.text(left, TOP - 26, "beside all peers" if not do else "beside those that compress, encrypt and deduplicate", 12, INK, bold=True)
        for place, (heading, part, step, measure) in enumerate(shown):
            canvas.text(left + place * CELL + 4, TOP - 9, heading, 9.5, SOFT)
            for y, result in zip(heights, all_results):
                figures = column(result, part, result[part][step], measure)
                best = against(result, figures)[at * (len(CIRCLES) - 1)]
                cell(canvas, left + place * CELL, y, figures.get(OURS), best)
    said = ["Below the gap: other scales."] * bool(rest) + [f"Busy: other programs took more than {BUSY:g} of a core."] * any(map(is_busy, all_results))
    if said:
        canvas.text(24, canvas.height - 12, " ".join(said), 10.5, SOFT)
    return canvas.said(f"{title}: Drumlin beside the best of its peers")


def short(title):
    """A title up to what only explains it."""
    return title.replace(":", ",").split(",")[0]


def cell(canvas, x, y, ours, best):
    """How many times the best's figure Drumlin's is; what became of ours where there is none."""
    if best is None:
        canvas.rect(x, y, CELL - 2, ROW - 2, "#f8f9fa")
        canvas.text(x + 4, y + 19, "–" if ours is None or ours.value is not None else ours.status, 10, SOFT)
        return
    shade = SHADES[LEVEL] if best.level else next(shade for number, shade in enumerate(SHADES) if best.times <= shade[0] and number != LEVEL)
    canvas.rect(x, y, CELL - 2, ROW - 2, shade[1])
    canvas.text(x + 4, y + 14, f"{best.times:.2f}" if best.times < 99.5 else f"{best.times:,.0f}", 12, shade[2], bold=True)
    canvas.text(x + 4, y + 26, best.name, 9.5, shade[2])


def legend(canvas, x, y):
    """What the colours mean."""
    for _, fill, _, words in SHADES:
        canvas.rect(x, y - 9, 11, 11, fill)
        canvas.text(x + 17, y + 1, words, 11, SOFT)
        x += 17 + wide(words, 11) + 18
