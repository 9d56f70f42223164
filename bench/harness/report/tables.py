"""Tables of a result, in Markdown: a row a tool, and below them how Drumlin stands to the best of its peers. Pure."""

from .. import stats
from .figures import (CIRCLES, CONNECTIONS, CPU, DISK, DOWN, ENTRIES, FILES, LOCAL, MEMORY, OURS, REPOSITORY, SECONDS, SERVER_CPU, SERVER_MEMORY, TURNS, UP,
                      best_peers, column, headings, is_over_ten_times, number)


# What is of a server, or besides: not every tool has it.
OF_SOME = (SERVER_CPU, SERVER_MEMORY, LOCAL, UP, DOWN, TURNS, CONNECTIONS)


def table(result, columns):
    """`columns`: (heading, part, step, measure). Columns in which nobody has a figure are left out; None if all are."""
    filled = [(heading, column(result, part, step, measure)) for heading, part, step, measure in columns]
    filled = [(heading, figures) for heading, figures in filled if any(figure.value is not None for figure in figures.values())]
    if not filled:
        return None
    rows = [["", *(heading for heading, _ in filled)]]
    for name in result["tools"]:
        # What not every tool has is no column for one that was killed.
        if all(figures[name].value is None and (figures[name].status == "–" or figures[name].measure in OF_SOME) for _, figures in filled):
            continue
        rows.append([bold(name), *(cell(figures, figures[name]) for _, figures in filled)])
    if any(OURS in figures and figures[OURS].value is not None for _, figures in filled):
        told = None
        for (said, _), best in zip(CIRCLES, zip(*(best_peers(result, figures) for _, figures in filled))):
            if any(best) and best != told:
                told = best
                rows.append([f"*{said}*", *(f"{figures[of[0]].said} {of[0]}" if of else "–" for (_, figures), of in zip(filled, best))])
                rows.append(["*Drumlin : that*", *(times(figures[OURS].value, of) for (_, figures), of in zip(filled, best))])
    return "\n".join(["| " + " | ".join(rows[0]) + " |", "|---" + "|---:" * len(filled) + "|"] + ["| " + " | ".join(row) + " |" for row in rows[1:]])


def bold(name):
    return f"**{name}**" if name == OURS else name


def cell(figures, figure):
    """A figure, with its spread if there were several rounds, and a mark if it is more than ten times the best."""
    if figure.value is None:
        return figure.status
    text = figure.said + ("†" if is_over_ten_times(figures, figure) else "")
    least, most = map(figure.measure.said, (figure.least, figure.most))
    if least != most:
        text += f" <sub>{least}–{most}</sub>"
    return text


def times(value, of):
    found = stats.ratio(value, of and of[1])
    return "–" if found is None else f"{found:.2f}" if found < 100 else f"{found:,.0f}"


def tables(result):
    """(title, table) of everything that was measured."""
    both = headings(result)
    backups, last = both[: len(result["steps"])], both[len(result["steps"]) - 1: len(result["steps"])]
    wanted = [
        ("Seconds", [(*heading, SECONDS) for heading in both]),
        ("Processor seconds", [(*heading, CPU) for heading in both]),
        ("Peak memory, MB", [(*heading, MEMORY) for heading in both]),
        ("Processor seconds of the server", [(*heading, SERVER_CPU) for heading in both]),
        ("Peak memory of the server, MB", [(*heading, SERVER_MEMORY) for heading in both]),
        ("Repository, MB", [(*heading, REPOSITORY) for heading in backups]),
        ("Room that it takes on the disk, MB", [(*heading, DISK) for heading in (*backups[:1], *last)]),
        ("Files and entries (with folders) in the repository; kept besides, MB",
         [(f"files after {backups[0][0]}", *backups[0][1:], FILES), (f"entries after {backups[0][0]}", *backups[0][1:], ENTRIES),
          (f"entries after {last[0][0]}", *last[0][1:], ENTRIES), ("besides", *last[0][1:], LOCAL)]),
        ("To the server, MB", [(*heading, UP) for heading in both]),
        ("From the server, MB", [(*heading, DOWN) for heading in both]),
        ("Turns on the wire", [(*heading, TURNS) for heading in both]),
        ("Connections", [(*heading, CONNECTIONS) for heading in both]),
    ]
    made = [(title, table(result, columns)) for title, columns in wanted]
    return [(title, text) for title, text in made if text]


def about(result):
    """The tools: version, what they do with their repository, whether they sync, what to know."""
    rows = ["| | version | deduplicates | compresses | encrypts | syncs | |", "|---|---|---|---|---|---|---|"]
    for name, tool in result["tools"].items():
        calls = tool["syncs"]
        synced = "not known" if calls is None else ", ".join(f"{count} {call}" for call, count in sorted(calls.items())) or "no"
        notes = "; ".join(filter(None, (f"as {tool['of']}" if tool["of"] else "", tool["note"], trust(result, name))))
        rows.append(f"| {bold(name)} | {version(tool)} | {' | '.join(does(tool, what) for what in ('deduplicates', 'compresses', 'encrypts'))} | {synced} | {notes} |")
    return "\n".join(rows)


def measured_by(result):
    """The commit that measured, where it is told; all of them where a run was taken up again by another."""
    told = dict.fromkeys(record.get("commit") or result.get("commit") for record in result.get("rounds") or [{}])
    named = [commit for commit in told if commit]
    return f", commit{'s' * (len(named) > 1)} {', '.join(named)}" if named else ""


def version(tool):
    """What a tool says of itself, and which build of that it was: the first digits of its program's SHA-256, in brackets."""
    told = tool["version"] or "not told"
    return f"{told} ({tool['program'][:8]})" if tool.get("program") else told


def commands(result):
    """What was called: of each tool the first backup, the last, and the last restore, by their first good rounds. Paths are below its place."""
    rows = []
    for name in result["tools"]:
        told = {}
        for title, part, step in ((f"backup, {result['steps'][0]}", "steps", result["steps"][0]), (f"backup, {result['steps'][-1]}", "steps", result["steps"][-1]),
                                  ("restore", "restores", result["restores"][-1])):
            records = (round_[part].get(step, {}) for round_ in result["rounds"] if round_["tool"] == name)
            if command := next((record["command"] for record in records if record.get("command")), None):
                told.setdefault(" ".join(command.split()), title)
        rows += [f"- {name}, {title}: `` {command} ``" for command, title in told.items()]
    return "\n".join(rows)


def does(tool, what):
    return {True: "yes", False: "no", None: "not told"}[tool.get(what)]


def trust(result, name):
    """What the comparison of its restores with the source found besides wrong contents."""
    checks = [record.get("check") for round_ in result["rounds"] if round_["tool"] == name for record in round_["restores"].values()]
    worst = max((check["metadata"] for check in checks if check), default=0)
    return f"a restore has other times, modes or owners for {worst:,} entries" if worst else ""


def failures(result):
    """What went wrong, with the last that the tool said."""
    found = []
    for round_ in result["rounds"]:
        for part, verb in (("steps", "backup"), ("restores", "restore")):
            for step, record in round_[part].items():
                if record["status"] in ("failed", "wrong"):
                    said = [line.strip() for line in record.get("output", "").splitlines() if line.strip()]
                    found.append(f"- {round_['tool']}, {verb} “{step}”: {record['status']}" + (f": `{said[-1][:300].replace('`', '')}`" if said else ""))
                elif record["status"] == "over ten times":
                    found.append(f"- {round_['tool']}, {verb} “{step}”: killed after {record['limit']:.0f} s"
                                 + (f", the best took {number(record['best'])} s" if record.get("best") else ""))
    return found


def summary(result):
    """A run's main tables, for the one who has just made it."""
    wanted = ("Seconds", "Peak memory, MB", "Repository, MB", "To the server, MB", "From the server, MB", "Turns on the wire")
    parts = [f"{title}\n\n{text}" for title, text in tables(result) if title in wanted]
    return "\n\n".join([*parts, *failures(result)])
