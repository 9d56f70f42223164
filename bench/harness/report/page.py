"""The pages of docs/benchmarks that are made: one a result, and the list of them."""

from .. import results
from .bars import bars
from .figures import CPU, DOWN, ENTRIES, MEMORY, OURS, REPOSITORY, SECONDS, TURNS, UP, amount, are_level, best_peers, called, column, distance, hampered, number, order, others, peers, rounds, scale, share
from .glance import section
from .lines import lines
from .tables import about, commands, failures, measured_by, tables

# What was to be run, all that there are (a test says so): each at scale 1, which is as large as the seeds' own measurements.
WORKLOADS = ("W1", "W2", "W3", "W4", "W5", "W5-slow", "W6", "W7", "W8", "W8-se")
# A run at this part of it says how tools scale.
SCALE_TELLS = 0.3
MADE = "Made by `bench/report` from `bench/results/{file}`; not to be edited."


def stem(result):
    """What a result's files are called."""
    return f"{result['workload']}-scale-{result['scale']:g}-{result['cache']}{results.line_name(result)}"


def charts(result):
    """(name, drawing) of a result's charts: bars for steps; with six steps, lines over them too."""
    found, name = [], called(result)
    of_backups, of_restores = (SECONDS, CPU, MEMORY, REPOSITORY), (SECONDS, CPU, MEMORY)
    if results.line(result)[0]:
        of_backups, of_restores = (SECONDS, UP, TURNS, MEMORY), (SECONDS, DOWN, TURNS, MEMORY)
    steps = result["steps"][:2] if result["six"] else result["steps"]
    for step in steps:
        found.append((f"backup-{slug(step)}", bars(result, "steps", step, of_backups, f"{name}: backup, {step}")))
    if result["six"]:
        for slug_, part, measure, log, said in (("seconds", "steps", SECONDS, True, "seconds to back up"),
                                                ("repository", "steps", REPOSITORY, True, "size of the repository"),
                                                ("memory", "steps", MEMORY, True, "peak memory of a backup"),
                                                ("entries", "steps", ENTRIES, True, "file system entries in the repository"),
                                                ("restores", "restores", SECONDS, True, "seconds to restore each step")):
            found.append((f"lines-{slug_}", lines(result, part, measure, f"{name}: {said}", log)))
    for step in result["restores"][-1:]:
        found.append(("restore", bars(result, "restores", step, of_restores, f"{name}: restore")))
    return [(slug_, drawing) for slug_, drawing in found if drawing]


def slug(step):
    return "-".join("".join(letter if letter.isalnum() else " " for letter in step.lower()).split())


def near(result):
    """Who has one round alone, in words."""
    told = result["repeat"] > 1 and result.get("near")
    return f"; one round alone of tools that took over {number(told)} times the best of their like in all of their steps" if told else ""


def together(result):
    """Of how many runs it was put together, in words."""
    if not result.get("joined"):
        return ""
    at_once = ", which went on at the same time, each over a line and on a file system of its own" * result["at_once"]
    return f" Put together from {result['joined']} runs of some of the tools each{at_once}."


def absent(result, all_results):
    """Rows that a page of the same sort has (of trees or of streams, here or far away), and this one hasn't."""
    sort = lambda one: (bool(one.get("stream")), results.line(one)[0])
    there = {name for one in all_results if sort(one) == sort(result) for name in one["tools"]}
    return sorted(there - set(result["tools"]))


def page(result, all_results=()):
    """A result's page; `all_results`: those that are published with it."""
    machine, data = result["machine"], result["data"]
    memory = f", {machine['memory'] / 2**30:.0f} GiB of memory" if machine.get("memory") else ""
    parts = [
        f"# {called(result)}: {result['title']}, at scale {result['scale']:g}",
        MADE.format(file=results.file_name(result)),
        f"Data: {data['source']}; seed {result['seed']}: {amount(result)}. "
        f"{result['cache'].capitalize()} caches. {rounds(result).capitalize()}"
        f"{', in turns; medians, least and most behind them' if result['repeat'] > 1 else ''}{near(result)}. Ground: {result['ground']}.{wire(result)}{together(result)}",
        f"Machine: {machine['processor']}, {machine['cores']} cores{memory}, Linux {machine['kernel']}, {machine['system']}. "
        f"{results.minute(result)}{measured_by(result)}; processes waiting for a core when it began: {number(result['load'])}.{beside(result, all_results)}",
    ]
    if not result.get("complete", True):
        parts.append("**This run was stopped before it was done**: not all tools that it was to have are on this page.")
    if result.get("options", {}).get("check") == "no":
        parts.append("**What was restored was not held against the source.**")
    if (true := share(result)) < 1:
        says = " It shows that the tools work, and fixed costs; it says little of how they scale." if true < SCALE_TELLS else ""
        parts.append(f"**This is a run at {true:.2g} of the size that was to be.**{says}")
    parts += [f"![{name}](charts/{stem(result)}-{name}.svg)" for name, _ in charts(result)]
    parts += [f"## {title}\n\n{text}" for title, text in tables(result)]
    parts.append("† more than ten times the best time of the column. –: there is none, as an earlier step had failed or been killed.")
    if wrong := failures(result):
        parts.append("## What failed\n\n" + "\n".join(wrong))
    missing = absent(result, all_results)
    left_out = f"\n\nNot in this run, though other pages of its sort have them: {', '.join(missing)}." if missing else ""
    parts.append("## The tools\n\n" + about(result) + left_out + "\n\nVersion: behind it the first digits of the program's SHA-256. Syncs: calls during a first backup of a small tree. [How to read this](README.md).")
    if called_ := commands(result):
        parts.append("## The commands\n\n" + called_)
    return "\n\n".join(parts) + "\n"


def beside(result, all_results):
    """What else went on during all the commands together, in cores, if it was counted, and which of the other runs."""
    at_once = [other for other in order(all_results) if other is not result and other["machine"] == result["machine"] and results.overlap(result, other)]
    runs = ", ".join(f"[{called(other)} at {other['scale']:g}]({stem(other)}.md)" for other in at_once)
    counted = others(result)
    most = ", ".join(f"{tool} ({part:.2f})" for part, tool in hampered(result))
    return ((f" While the commands ran, other programs took {counted[0]:.2f} of a core, and the machine's host {counted[1]:.2f}." if counted else "")
            + (f" It took most in the rows of {most}: theirs are the times of a somewhat slower machine." if most else "")
            + (f" Runs that went on at the same time, in part at least: {runs}." if runs else ""))


def wire(result):
    """What lies between clients and servers, if it was set."""
    far, rtt_ms, up, down = results.line(result)
    rates = [f"{results.speed(up)} each way"] if up == down else [f"{results.speed(up)} to the server", f"{results.speed(down)} from it"]
    parts = [f"{rtt_ms:g} ms of round trip"] * bool(rtt_ms) + rates * bool(up or down)
    return (" All repositories are on a server, over ssh or of the tool's own." * far
            + (f" Between client and server: {', '.join(parts)}." if parts else ""))


def standing(result, figures):
    """Drumlin's figure, and how many times each of the best it is; each of them once."""
    ours = figures.get(OURS)
    if ours is None or ours.value is None:
        return ours.said if ours else "–"
    there = dict.fromkeys(best for best in best_peers(result, figures) if best and best[1])
    said = [f"{'≈ ' * are_level(result, ours, figures[name])}{ours.value / value:.2f} × {name}" for name, value in there]
    return f"{ours.said}: {', '.join(said)}" if there else ours.said


def did(result):
    """How many peers did all that was asked of them, of how many."""
    wrong = {record["tool"] for record in result["rounds"] for part in ("steps", "restores") if any(step["status"] != "ok" for step in record[part].values())}
    names = peers(result)
    return f"{sum(name not in wrong for name in names)} of {len(names)}"


def when(result):
    """The day, on what, and which build of ours it was, as tables of tools tell it."""
    build = (result["tools"].get(OURS, {}).get("program") or "")[:8]
    return ", ".join(part for part in (result["date"][:10], result["machine"]["processor"], build) if part)


def contents(all_results, apart=(), is_swept=False):
    """The list of all pages, with how Drumlin stands; `apart`: names and titles of tables of their own; whether there is a sweep."""
    rows = ["## All runs", "Drumlin's figure, and how many times it is that of the best peer, of the best that compresses and encrypts, and of the best that deduplicates, "
            "too (below 1: Drumlin leads; ≈: level):"]
    lines_ = ["| workload | scale | data | caches | line | first (s) | no change (s) | restore (s) | memory of first (MB) | repository (MB) | peers | rounds | date, processor, build |", "|---|---:|---|---|---|---:|---:|---:|---:|---:|---|---|---|"]
    for result in order(all_results):
        cells = []
        for part, step, measure in (("steps", result["steps"][0], SECONDS), ("steps", result["steps"][1], SECONDS),
                                    ("restores", result["restores"][-1], SECONDS), ("steps", result["steps"][0], MEMORY),
                                    ("steps", result["steps"][0], REPOSITORY)):
            figures = column(result, part, step, measure)
            cells.append(standing(result, figures))
        lines_.append(f"| [{result['workload']}, {result['title'][0].lower()}{result['title'][1:]}]({stem(result)}.md) | {scale(result)} | {amount(result)} | {result['cache']} | {distance(result) or '–'} | {' | '.join(cells)} | {did(result)} | {rounds(result)} | {when(result)} |")
    lacking = [name for name in WORKLOADS if not any(result["workload"] == name for result in all_results)]
    rows.append("Each workload was to be run at scale 1, of which *scale* says what part was (in brackets: what part it came to, where that is another one); a run at a small one says little of how tools scale. *Peers*: how many did all steps and gave back what was there, of how many rows. *Build*: the first digits of the program's SHA-256."
                + (f" Not run so far: {', '.join(lacking)}." if lacking else ""))
    tables_ = "".join(f"- [{title}]({name}.md)\n" for name, title in apart)
    head = "# Results\n\nMade by `bench/report` from `bench/results`; not to be edited. [How to read this](README.md).\n"
    listed = [section(all_results), "\n\n".join(rows) + "\n", "\n".join(lines_) + "\n"] if all_results else ["There are none so far: `bench/run` makes them.\n"]
    tables_ += "- [Each constant that a user can't set, turned, beside the default](sweep.md)\n" if is_swept else ""
    parts = [head, *listed, f"## Measured apart\n\n{tables_}" if tables_ else ""]
    return "\n".join(part for part in parts if part)
