"""Where others are first: all columns of all results in which somebody is ahead of Drumlin, and why. Pure, but for the reasons."""

import tomllib
from fnmatch import fnmatchcase
from math import inf
from pathlib import Path

from .figures import CIRCLES, CPU, DOWN, ENTRIES, LOCAL, MEMORY, OURS, REPOSITORY, SECONDS, TURNS, UP, alike, best_peers, called, column, number
from .tables import headings

REASONS = Path(__file__).with_name("reasons.toml")
# Who is ahead by less than this is beside Drumlin.
PART = 1.02
# More steps than this are told as a range.
STEPS_SAID = 3
MEASURES = {"seconds": SECONDS, "memory": MEMORY, "repository": REPOSITORY, "to the server": UP, "from the server": DOWN}
# Of these, who does less mostly has less: all workloads together.
LESSER = {"processor": CPU, "entries": ENTRIES, "kept besides": LOCAL, "turns": TURNS}
# What is there after a backup alone.
KEPT = (REPOSITORY, ENTRIES, LOCAL)


def ahead(result, measure):
    """Of the best of each circle: {tool: [(step, how many times Drumlin's figure is theirs)]}; the columns. Who can't be told from
    Drumlin, as their rounds overlap, isn't ahead."""
    found, columns = {}, 0
    for heading, part, step in headings(result):
        if measure in KEPT and part == "restores":
            continue
        figures = column(result, part, step, measure)
        ours = figures[OURS].value if OURS in figures else None
        if ours is None:
            continue
        columns += 1
        for best in dict.fromkeys(best_peers(result, figures)):
            if best and best[1] and ours > best[1] * PART and not alike(figures[OURS], figures[best[0]]):
                found.setdefault(best[0], []).append((heading, ours / best[1]))
    return found, columns


def reasons():
    """(measure, patterns of tools, patterns of workloads, how many times at most, why) of each known reason."""
    return [(r["measure"], r["tools"], r.get("workloads", ["*"]), r.get("up_to", inf), r["why"]) for r in tomllib.loads(REASONS.read_text())["reason"]]


def why(known, measure, tool, workload, times=1.0):
    """The first reason that fits, and explains so much; None if nobody knows."""
    fits = lambda patterns, name: any(fnmatchcase(name, pattern) for pattern in patterns)
    return next((text for of, tools, workloads, up_to, text in known
                 if of == measure and fits(tools, tool) and fits(workloads, workload) and times <= up_to), None)


def said(steps, columns):
    if len(steps) <= STEPS_SAID:
        return ", ".join(f"{heading} {times:.2f}" for heading, times in steps)
    times = [times for _, times in steps]
    return f"{len(steps)} of {columns} columns, {min(times):.2f} to {max(times):.2f}"


def why_of(known, name, tool, result, times):
    """A reason, if there is one: over a line what fits there comes first."""
    names = [f"{result['workload']}-far"] * bool((result.get("wire") or {}).get("far")) + [result["workload"]]
    return next((text for at in names if (text := why(known, name, tool, at, times))), None)


def trails(all_results, known):
    """(rows of the table, what has no reason): a row for each workload, measure and reason."""
    rows, unknown = [], []
    for result in all_results:
        for name, measure in MEASURES.items():
            found, columns = ahead(result, measure)
            by_reason = {}
            for tool, steps in found.items():
                text = why_of(known, name, tool, result, max(times for _, times in steps))
                if text is None:
                    unknown.append(f"{called(result)}: {name}, {tool}")
                by_reason.setdefault(text or "not known", []).append(f"{tool}: {said(steps, columns)}")
            rows += [(f"{called(result)} at {result['scale']:g}", name, "; ".join(tools), text) for text, tools in by_reason.items()]
    return rows, unknown


def lesser(all_results, known):
    """(rows of the table, what has no reason): a row for each measure of LESSER and reason, over all workloads."""
    rows, unknown = [], []
    for name, measure in LESSER.items():
        by_reason, all_columns = {}, 0
        for result in all_results:
            found, columns = ahead(result, measure)
            all_columns += columns
            for tool, steps in found.items():
                text = why_of(known, name, tool, result, max(times for _, times in steps))
                if text is None:
                    unknown.append(f"{called(result)}: {name}, {tool}")
                by_reason.setdefault(text or "not known", {}).setdefault(tool, []).extend(times for _, times in steps)
        for text, tools in by_reason.items():
            who = "; ".join(f"{tool}: {len(times)}, {number(min(times))} to {number(max(times))}" for tool, times in tools.items())
            rows.append((name, f"{who} (of {all_columns})", text))
    return rows, unknown


def section(all_results):
    rows, _ = trails(all_results, reasons())
    if not rows:
        return ""
    text = ("## Where others are first\n\n"
            f"Every column of {', '.join(MEASURES)} in which the {', the '.join(name for name, _ in CIRCLES)} is ahead by more than {(PART - 1) * 100:.0f} %, and by "
            "more than the rounds differ: how many times its figure Drumlin's is. The reasons are explanations; what of them was measured is in docs/decisions and docs/history.md.\n\n"
            "| workload | | who | why |\n|---|---|---|---|\n")
    text += "".join(f"| {' | '.join(row)} |\n" for row in rows)
    rows, _ = lesser(all_results, reasons())
    if not rows:
        return text
    return text + (f"\nThe same of {', '.join(LESSER)}, in which who does less mostly has less: in how many columns of all pages, and how many times.\n\n"
                   "| | who | why |\n|---|---|---|\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows))
