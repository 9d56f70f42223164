"""Where others are first: all columns of all results in which somebody is ahead of Drumlin, and why. Pure, but for the reasons."""

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain
from math import inf
from pathlib import Path

from ..results import line
from .figures import CIRCLES, CPU, ENTRIES, LEVELS, LOCAL, REPOSITORY, TURNS, against, called, column, headings, number
from .glance import MEASURES

REASONS = Path(__file__).with_name("reasons.toml")
# Of these, who does less mostly has less: all workloads together.
LESSER = {"processor": CPU, "entries": ENTRIES, "kept besides": LOCAL, "turns": TURNS}
# What is there after a backup alone.
KEPT = (REPOSITORY, ENTRIES, LOCAL)


def ahead(result, measure):
    """Of the best of each circle: {tool: [(step, how many times Drumlin's figure is theirs)]}. Who can't be told from
    Drumlin, as their rounds overlap, isn't ahead."""
    found = {}
    for heading, part, step in headings(result):
        if measure in KEPT and part == "restores":
            continue
        figures = column(result, part, step, measure)
        for name, times in dict.fromkeys((best.name, best.times) for best in against(result, figures) if best and not best.level and best.times > 1):
            found.setdefault(name, []).append((heading, times))
    return found


@dataclass(frozen=True)
class Reason:
    """Why others are first, as the file has it: of which measure, patterns of tools, workloads and steps, how many times at most."""

    measure: str
    tools: tuple
    why: str
    workloads: tuple = ("*",)
    steps: tuple = ("*",)
    up_to: float = inf

    def fits(self, measure, tool, workload, step, times):
        """Whether it explains that in this step Drumlin's figure is so many times the tool's."""
        of = lambda patterns, name: any(fnmatchcase(name, pattern) for pattern in patterns)
        return self.measure == measure and of(self.tools, tool) and of(self.workloads, workload) and of(self.steps, step) and times <= self.up_to


def reasons():
    """All that are known, in their order."""
    return [Reason(**{key: tuple(value) if isinstance(value, list) else value for key, value in of.items()}) for of in tomllib.loads(REASONS.read_text())["reason"]]


def why_of(known, measure, tool, result, step, times):
    """The first reason that fits, and explains so much; None if nobody knows. Over a line what fits there comes first."""
    names = [f"{result['workload']}-far"] * bool((result.get("wire") or {}).get("far")) + [result["workload"]]
    return next((reason for at in names for reason in known if reason.fits(measure, tool, at, step, times)), None)


def explained(all_results, known, measures):
    """({(measure, why): {tool: [(result, step, times)]}}, what has no reason, the reasons that were of use)."""
    found, unknown, used = {}, [], set()
    for name, measure in measures.items():
        for result in all_results:
            for tool, steps in ahead(result, measure).items():
                for step, times in steps:
                    reason = why_of(known, name, tool, result, step, times)
                    if reason is None:
                        unknown.append(f"{called(result)}: {name}, {tool}, {step}, {times:.2f}")
                    else:
                        used.add(reason)
                    found.setdefault((name, reason.why if reason else "not known"), {}).setdefault(tool, []).append((result, step, times))
    return found, unknown, used


def rows(found):
    """A row for each measure and reason: measure, who and by how much, where, why."""
    made = []
    for (name, text), tools in found.items():
        who = "; ".join(f"{tool}: {said([times for _, _, times in columns])}" for tool, columns in tools.items())
        made.append((name, who, where(columns for columns in tools.values()), text))
    return made


def said(times):
    """How often, and how many times Drumlin's figure is theirs."""
    if len(times) == 1:
        return f"{times[0]:.2f}"
    least, most = number(min(times)), number(max(times))
    return f"{len(times)} columns, {least}" + f" to {most}" * (least != most)


def where(all_columns):
    """Of which pages columns are, in words: each workload with its scales, and with the lines together."""
    here, far = {}, {}
    for result, _, _ in chain(*all_columns):
        (far if line(result)[0] else here).setdefault(result["workload"], set()).add(result["scale"])
    parts = [f"{name} at {', '.join(f'{scale:g}' for scale in sorted(scales))}" for name, scales in sorted(here.items())]
    return "; ".join(parts + [f"over lines {', '.join(sorted(far))}"] * bool(far))


def page(all_results):
    """A page of them all."""
    known = reasons()
    circles = ", the ".join(name for name, _ in CIRCLES)
    text = ("# Where others are first\n\nMade by `bench/report` from `bench/results`; not to be edited. [How to read this](README.md).\n\n"
            f"Every column of {', '.join(MEASURES)} in which another program is ahead of Drumlin, grouped by reason: the {circles}. Each entry says in how many columns, "
            f"and how many times that program's figure Drumlin's is. Who is level isn't here ({LEVELS}). The reasons are explanations; what of them was measured is in "
            "[decisions](../decisions), [figures](../figures.md) and [left](../left.md).\n\n| | who | where | why |\n|---|---|---|---|\n")
    text += "".join(f"| {' | '.join(row)} |\n" for row in rows(explained(all_results, known, MEASURES)[0]))
    text += f"\nThe same of {', '.join(LESSER)}, in which who does less mostly has less:\n\n| | who | where | why |\n|---|---|---|---|\n"
    return text + "".join(f"| {' | '.join(row)} |\n" for row in rows(explained(all_results, known, LESSER)[0]))
