"""The page of the sweep: what each turn of each knob does, as data says. Pure."""

from .judge import COLUMNS, PART, columns, compare, distance, middle, verdict

UNITS = {"wall": (1, "{:.2f}"), "memory": (1e6, "{:.0f}"), "repository": (1e6, "{:.1f}")}


def said(figure, what):
    size, form = UNITS[what]
    return "–" if figure is None else form.format(figure / size)


def page(sweep, of=None):
    """A sweep's page, in Markdown. `of`: how many knobs there are."""
    knobs = sweep["knobs"]
    verdicts = [(knob, point, run, verdict(run["default"], figures, knob["touches"])) for knob in knobs for run in knob["runs"] for point, figures in run["values"].items()]
    better = [f"- {knob['name']} = `{point}`, {run['workload']} at {run['scale']:g}: "
              + ", ".join(f"{heading.split(',')[0]} {ratio:.2f} times as good" for heading, ratio in compare(run["default"], run["values"][point], knob["touches"])[0].items())
              for knob, point, run, is_ in verdicts if is_ == "better"]
    parts = [
        "# The sweep",
        "Made by `bench/report` from `bench/results/sweep/sweep.json`, which `bench/sweep` measures; not to be edited.",
        "Every knob that a user can't turn, turned, one at a time, each value beside the default in the same rounds. A value is *better* if it gains more "
        "than a tenth in one column of a workload and loses more than a tenth in none; *another choice* if it does both. Ratios are to the default "
        "of the medians (below 1: less), where they differ by more than a tenth and each round of the one from each of the other in the same direction. "
        "Knobs of backups are judged by backups alone, those of restores by restores.",
        f"{machines(sweep)}, {sweep['repeat']} rounds, hot caches, the first round's restores held against the source; “-far”: "
        f"over a line of 50 ms and 3 MB/s. "
        f"{len(knobs)}{f' of {of}' * (of is not None)} knobs, {len(verdicts)} comparisons: {', '.join(f'{sum(v == kind for *_, v in verdicts)} {kind}' for kind in ('better', 'worse', 'another choice', 'same', 'failed'))}.",
        "## Better than the default\n\n" + ("\n".join(better) or "None."),
        "## How far the defaults are from the best\n\nOf the medians, whatever the single rounds say: the best of a knob's points in a column may be the worst in another.\n\n"
        "| column | within a tenth | farther | farthest |\n|---|---:|---:|---|\n" + "\n".join(distances(knobs)),
        "## All",
        "| knob | value | workload | " + " | ".join(heading for heading, *_ in COLUMNS) + " | |\n|---|---|---|" + "---:|" * len(COLUMNS) + "---|\n"
        + "\n".join(row for knob in knobs for run in knob["runs"] for row in rows(knob, run)),
    ]
    return "\n\n".join(parts) + "\n"


def machines(sweep):
    """What it was measured on and when: each knob may have been on a day and a machine of its own."""
    of_knobs = [knob.get("machine", sweep["machine"]) for knob in sweep["knobs"]] or [sweep["machine"]]
    told = sorted({f"{of['processor']}, {of['cores']} cores, Linux {of['kernel']}" for of in of_knobs})
    days = sorted({knob.get("date", sweep["date"])[:10] for knob in sweep["knobs"]}) or [sweep["date"][:10]]
    commits = list(dict.fromkeys(knob["commit"] for knob in sweep["knobs"] if knob.get("commit")))
    of = f", commit{'s' * (len(commits) > 1)} {', '.join(commits)}" if commits else ""
    return f"Machine{'s' * (len(told) > 1)}: {'; '.join(told)}. {days[0]}{f' to {days[-1]}' * (len(days) > 1)}{of}"


def distances(knobs):
    """A row for each column: of how many knobs and workloads the default is within a tenth of the best, and which is farthest."""
    for heading, *_ in COLUMNS:
        found = [(distance(run["default"], run["values"].values(), knob["touches"]).get(heading), knob["name"], run["workload"])
                 for knob in knobs if heading in columns(knob["touches"]) for run in knob["runs"]]
        found = sorted(one for one in found if one[0] is not None)
        if found:
            far = [one for one in found if one[0] > PART]
            ratio, name, workload = found[-1]
            yield f"| {heading.split(',')[0]} | {len(found) - len(far)} | {len(far)} | " + (f"{ratio:.2f} times: {name}, {workload}" if ratio > 1 else "–") + " |"


def rows(knob, run):
    """The default's row with its figures, and one a value with what differs."""
    default, place = run["default"], f"{run['workload']} at {run['scale']:g}"
    yield f"| {knob['name']} | `{knob['default']}` | {place} | " + " | ".join(said(middle(default, heading), what) for heading, _, _, what, _ in COLUMNS) + " | default |"
    for value, figures in run["values"].items():
        gains, losses = compare(default, figures, knob["touches"])
        cells = [f"× {1 / gains[heading]:.2f}" if heading in gains else f"× {losses[heading]:.2f}" if heading in losses else "" for heading, *_ in COLUMNS]
        yield f"| | `{value}` | | " + " | ".join(cells) + f" | {verdict(default, figures, knob['touches'])} |"
