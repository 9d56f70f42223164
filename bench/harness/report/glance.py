"""At a glance: how often Drumlin is ahead, level or behind, and a drawing with a cell for each run and figure. Pure."""

from .. import results
from . import named
from .figures import BUSY, CIRCLES, DOWN, LEVELS, MEMORY, OURS, REPOSITORY, SECONDS, SLOWER, UP, WAITING, against, column, distance, headings, is_busy, largest, rounds, scale
from .shades import legend, shade
from .svg import INK, SOFT, Canvas, wide

# What is counted and drawn: of repositories here, and of those over a line.
MEASURES = {"seconds": SECONDS, "memory": MEMORY, "repository": REPOSITORY, "to the server": UP, "from the server": DOWN}
# A cell each: heading, part, which of its steps, measure.
SHOWN = (("first, s", "steps", 0, SECONDS), ("no change, s", "steps", 1, SECONDS), ("restore, s", "restores", -1, SECONDS))
SHOWN_HERE = (*SHOWN, ("first, RAM", "steps", 0, MEMORY), ("restore, RAM", "restores", -1, MEMORY), ("repository", "steps", 0, REPOSITORY))
SHOWN_FAR = (*SHOWN, ("first, RAM", "steps", 0, MEMORY), ("first, sent", "steps", 0, UP), ("restore, fetched", "restores", -1, DOWN))
# Bytes: what takes so little shows fixed costs alone.
LITTLE = 3_000_000
ROW, TOP, BOTTOM, LEFT, CELL, GAP = 34, 132, 34, 238, 80, 18


def counts(all_results, ours=OURS):
    """Rows (measure, (ahead, level, behind) of each circle): over all columns of some results in which both have a figure; `ours`: Drumlin's row."""
    rows = []
    for name, measure in MEASURES.items():
        found = [[0, 0, 0] for _ in CIRCLES]
        for result in all_results:
            for _, part, step in headings(result):
                if measure is REPOSITORY and part == "restores":
                    continue
                for number, best in enumerate(against(result, column(result, part, step, measure), ours)):
                    if best:
                        found[number][1 if best.level else 0 if best.times < 1 else 2] += 1
        if any(map(any, found)):
            rows.append((name, [tuple(of) for of in found]))
    return rows


def table(title, all_results):
    """The counts, in Markdown; of the row with a passphrase, too, where times and memory differ by it."""
    rows = [(name, of, by_circle) for of in (OURS, SLOWER) for name, by_circle in counts(all_results, of) if of == OURS or MEASURES[name] in (SECONDS, MEMORY)]
    text = f"| {title} | " + " | ".join(f"beside the {name}" for name, _ in CIRCLES) + " |\n|---" + "|---:" * len(CIRCLES) + "|\n"
    return text + "".join(f"| {name}{', with a passphrase' * (of != OURS)} | " + " | ".join(" / ".join(map(str, of)) for of in by_circle) + " |\n" for name, of, by_circle in rows)


def machines(all_results):
    """What they ran on and how, in words."""
    to = lambda values: " or ".join(str(value) for value in sorted(set(values)))
    of = [result["machine"] for result in all_results]
    processors = to(machine["processor"].replace("(R)", "") for machine in of)
    memory = to(round(machine["memory"] / 2**30) for machine in of if machine.get("memory"))
    single = sum(rounds(result) == "one round" for result in all_results)
    return (f"All runs: {to(machine['cores'] for machine in of)} cores ({processors})" + f", {memory} GiB of memory" * bool(memory)
            + f"; hot caches, unless a row says cold; {single} of {len(all_results)} runs had one round")


def rows_killed(all_results):
    """How many rows were killed in the middle of a backup."""
    return sum(len({record["tool"] for record in result["rounds"] if any(step["status"] == "over ten times" for step in record["steps"].values())}) for result in all_results)


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
    parts = ["## At a glance", f"{machines(all_results)}. In each cell: in how many columns Drumlin is **ahead / level / behind**. A column is one step on one page; of repositories here the largest page of each workload "
             f"beside many programs counts, with hot and with cold caches. Level: {LEVELS}."]
    parts += [table(title, largest(of)[0]).strip() for title, of in (("repositories here", here), ("repositories over a line", far)) if of]
    if killed := rows_killed(largest(here)[0]):
        parts.append(f"Rows of repositories here that were killed, as they took more than ten times the best: {killed}. They count in no column, though some of them make small repositories.")
    if far:
        small = sum(result["data"]["bytes"] < LITTLE for result in far)
        parts.append(f"A workload with more steps counts more. Pages over lines with less than {LITTLE / 1e6:g} MB of data: {small} of {len(far)}.")
    parts += [f"![At a glance](charts/{name}.svg)" for name, _ in charts(all_results)]
    one_by_one = f"One by one: [{named.TITLE}]({named.PAGE}.md). " * bool(named.chosen(all_results))
    parts.append(f"{one_by_one}Where others are ahead, by how much and why: [where others are first](others-first.md).")
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
    legend(canvas, 24, 80, "the best")
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
    said = ["Below the gap: other scales."] * bool(rest) + [f"Busy: other programs took more than {BUSY:g} of a core (of older runs: more than {WAITING:g} process waited for one as it began)."] * any(map(is_busy, all_results))
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
    fill, ink = shade(best.times, best.level)
    canvas.rect(x, y, CELL - 2, ROW - 2, fill)
    canvas.text(x + 4, y + 14, f"{best.times:.2f}" if best.times < 99.5 else f"{best.times:,.0f}", 12, ink, bold=True)
    canvas.text(x + 4, y + 26, best.name, 9.5, ink)
