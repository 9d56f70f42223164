"""From a result to figures: medians by tool and step, with their spread, and what there is to say instead of a figure. Pure."""

from dataclasses import dataclass

from .. import results, stats

# Bytes at scale 1 of workloads that have a least size, so that small scales are larger than they are called.
WHOLE_BYTES = {"W7": 8 << 30}
# Who is ahead by less than this is level: of sizes and of what has several rounds; of times and memory where either has one round; and where the machine was busy.
PART = 1.02
ONE_ROUND = 1.1
BUSY_MACHINE = 1.25
# Cores that other programs may take before a page counts as one of a busy machine; where that wasn't counted, how many processes may wait for one as it begins.
BUSY = 0.3
WAITING = 1.0
# Of rows of so many seconds a page names those from which the machine's host took more than so much of a core.
LONG = 10
HAMPERED = 0.02
LEVELS = (f"within {(PART - 1) * 100:.0f} %; of times and memory within {(ONE_ROUND - 1) * 100:.0f} % where either has one round, and {(BUSY_MACHINE - 1) * 100:.0f} % on a busy machine; "
          "or where the rounds overlap")
OURS = results.OURS
# Its row that unlocks by a passphrase instead of a key in a file.
SLOWER = f"{OURS}-passphrase"
# Whom Drumlin is compared with: what the best of them is called, and what they all do.
CIRCLES = (("best peer", ()), ("best that compresses and encrypts", ("compresses", "encrypts")),
           ("best that deduplicates, too", ("compresses", "encrypts", "deduplicates")))


@dataclass
class Measure:
    """A kind of figure: where it lies in a step's record, its unit, and what one unit is."""

    title: str
    what: str
    unit: str
    one: float = 1.0
    whole: bool = False

    def said(self, value):
        """A figure, as tables and charts show it."""
        return f"{value:,.0f}" if self.whole and value is not None else number(value)


SECONDS = Measure("Time", "wall", "s")
CPU = Measure("Processor time", "cpu", "s")
MEMORY = Measure("Peak memory", "memory", "MB", 1e6)
SERVER_CPU = Measure("Processor time of the server", "server_cpu", "s")
SERVER_MEMORY = Measure("Peak memory of the server", "server_memory", "MB", 1e6)
REPOSITORY = Measure("Repository", "repository.bytes", "MB", 1e6)
DISK = Measure("Room on the disk", "repository.disk", "MB", 1e6)
FILES = Measure("Files in the repository", "repository.files", "", whole=True)
ENTRIES = Measure("Entries in the repository", "repository.entries", "", whole=True)
LOCAL = Measure("Kept besides: caches, catalogues, settings", "local.bytes", "MB", 1e6)
UP = Measure("To the server", "wire.up", "MB", 1e6)
DOWN = Measure("From the server", "wire.down", "MB", 1e6)
TURNS = Measure("Turns on the wire", "wire.turns", "", whole=True)
CONNECTIONS = Measure("Connections", "wire.connections", "", whole=True)
# What differs from one round to the next, whatever the program does.
VARYING = (SECONDS, CPU, MEMORY, SERVER_CPU, SERVER_MEMORY)


@dataclass
class Figure:
    """A figure of a tool: median, least and most, or what became of it instead."""

    tool: str
    value: float | None
    least: float | None
    most: float | None
    status: str
    measure: Measure
    rounds: int = 1

    @property
    def said(self):
        return self.status if self.value is None else self.measure.said(self.value)


def number(value):
    """A number as tables and charts show it: three digits that count."""
    if value is None:
        return "–"
    if value >= 1e5:
        return f"{value:,.0f}"
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    if value >= 0.0995 or value == 0:
        return f"{value:.2f}"
    return f"{value:.3f}"


def column(result, part, step, measure):
    """All tools' figures of a step, by name, in the order of the tools."""
    values = results.figures(result, part, step, measure.what)
    found = {}
    for tool in result["tools"]:
        of = [value / measure.one for value in values.get(tool, []) if value is not None]
        status, record = results.status(result, part, step, tool)
        middle, range_ = stats.median(of), stats.spread(of)
        if status == "wrong":
            middle, range_ = None, None
        limit = record.get("limit")
        said = f"killed after {limit:.0f} s" if limit else "–" if status in ("ok", "not run") else "restored wrong" if status == "wrong" else status
        found[tool] = Figure(tool, middle, *(range_ or (None, None)), said, measure, len(of))
    return found


def peers(result, do=()):
    """The tools that Drumlin is compared with; `do`: what they all do."""
    return [name for name, tool in result["tools"].items() if not name.startswith(OURS) and all(tool.get(what) for what in do)]


def best_peers(result, figures):
    """Of each circle (name, value) of the best in a column; None where there is none."""
    return [stats.best({name: figures[name].value for name in peers(result, do)}) for _, do in CIRCLES]


@dataclass
class Best:
    """The best peer of a circle: how many times its figure Drumlin's is, and whether neither is ahead."""

    name: str
    times: float
    level: bool


def against(result, figures, ours=OURS):
    """Of each circle the best, as a `Best`; None where either has no figure; `ours`: which row of Drumlin's."""
    ours = figures.get(ours)
    found = []
    for best in best_peers(result, figures):
        times = stats.ratio(ours and ours.value, best and best[1])
        found.append(None if times is None else Best(best[0], times, are_level(result, ours, figures[best[0]])))
    return found


def are_level(result, figure, other):
    """Whether neither of two figures counts as ahead: they are too close for what they are, or their rounds overlap."""
    once, close = min(figure.rounds, other.rounds) < 2, figure.measure not in VARYING
    part = PART if close else BUSY_MACHINE if is_busy(result) else ONE_ROUND if once else PART
    return 1 / part <= figure.value / other.value <= part or alike(figure, other)


def headings(result):
    """(heading, part, step) of all backups and restores."""
    found = [(step, "steps", step) for step in result["steps"]]
    return found + [(f"restore of {step}" if len(result["restores"]) > 1 else "restore", "restores", step) for step in result["restores"]]


def alike(figure, other):
    """Whether two figures can't be told apart: of several rounds one at least, and the worst of one is beyond the best of the other."""
    return max(figure.rounds, other.rounds) > 1 and figure.least <= other.most and other.least <= figure.most


def is_over_ten_times(figures, figure):
    """Whether a time is more than ten times the best of its column."""
    if figure.measure is not SECONDS:
        return False
    found = stats.best({name: other.value for name, other in figures.items()})
    return figure.value is not None and found is not None and figure.value > results.TIMES_BEST * found[1]


def colour_of(tool):
    """Which of the colours a tool has: 2 compresses and encrypts, 1 one of the two, 0 neither."""
    return tool["compresses"] + tool["encrypts"]


def amount(result):
    """How much there is to save, in words."""
    data = result["data"]
    megabytes = f"{number(data['bytes'] / 1e6)} MB"
    if result.get("stream"):
        return f"{megabytes} of database"
    return f"{megabytes} in one file" if data["entries"] == 1 else f"{megabytes} in {data['entries']:,} entries"


def share(result):
    """What part there is of what was to be at scale 1: the scale, where the data could be made so."""
    scale, data = result["scale"], result["data"]
    if whole := WHOLE_BYTES.get(result["workload"]):
        return data["bytes"] / whole
    wanted = data.get("wanted")
    return scale * data["entries"] / wanted if wanted and data["entries"] < 0.95 * wanted else scale


def scale(result):
    """A result's scale, and what part it truly is of what was to be, if that is another one."""
    true = f"{share(result):.2g}"
    return f"{result['scale']:g}" + (f" ({true})" if float(true) != float(f"{result['scale']:.2g}") else "")


def others(result):
    """How many cores other programs took while the commands ran, and how many the machine's host took; None where it wasn't counted."""
    steps = [step for record in result["rounds"] for part in ("steps", "restores") for step in record[part].values() if step.get("others") is not None]
    wall = sum(step["wall"] for step in steps)
    return tuple(max(0.0, sum(step[what] for step in steps) / wall) for what in ("others", "stolen")) if wall else None


def hampered(result):
    """Rows of long runs from which the machine's host took more than `HAMPERED` of a core, and how much: the most first."""
    parts = {}
    for record in result["rounds"]:
        steps = [step for part in ("steps", "restores") for step in record[part].values() if step.get("stolen") is not None]
        if (wall := sum(step["wall"] for step in steps)) > LONG:
            parts[record["tool"]] = max(parts.get(record["tool"], 0), sum(step["stolen"] for step in steps) / wall)
    return sorted(((part, tool) for tool, part in parts.items() if part > HAMPERED), reverse=True)


def is_busy(result):
    """Whether so much else went on that of two who are close neither is ahead."""
    counted = others(result)
    return counted[0] > BUSY if counted else result["load"] > WAITING


def order(all_results):
    """Results as they are listed: those here first, by workload; the largest of each before the smaller ones."""
    return sorted(all_results, key=lambda result: (results.line(result)[0], result["workload"], -share(result), result["cache"], results.line(result)[1:]))


def programs(result):
    """How many programs, or ways to use one, took part."""
    return len({record["tool"] for record in result["rounds"]})


def largest(all_results):
    """Of each workload and sort of cache the largest of those here beside which at least half as many programs ran as beside any of
    them, as a page beside few says nothing of the others; and all over lines. Then what is left."""
    most = {}
    for result in all_results:
        of = (result["workload"], result["cache"])
        most[of] = max(most.get(of, 0), 0 if results.line(result)[0] else programs(result))
    seen, first, rest = set(), [], []
    for result in order(all_results):
        is_far, of = results.line(result)[0], (result["workload"], result["cache"])
        if is_far or of in seen or programs(result) * 2 < most[of]:
            (first if is_far else rest).append(result)
        else:
            first.append(result)
            seen.add(of)
    return first, rest


def distance(result):
    """How far away the repositories are, in words: empty where they are here."""
    far, rtt_ms, up, down = results.line(result)
    rates = [results.speed(up)] if up == down else [f"{results.speed(up)} up", f"{results.speed(down)} down"]
    parts = [f"{rtt_ms:g} ms"] * bool(rtt_ms) + rates * bool(up or down)
    return f"{'far' if far else 'servers far'}, {', '.join(parts) or 'no limits'}" if far or parts else ""


def called(result):
    """The workload, and how far away the repositories are."""
    return result["workload"] + (f" ({distance(result)})" if distance(result) else "")


def rounds(result):
    """How many rounds were done, in words, and of how many tools, where the others did one."""
    done = result["repeat"] if result.get("complete", True) else max((record["round"] for record in result["rounds"]), default=0)
    if done == 1:
        return "one round"
    tools = {record["tool"] for record in result["rounds"]}
    again = {record["tool"] for record in result["rounds"] if record["round"] > 1}
    return f"{done} rounds" + (f" of {len(again)} tools, one of {len(tools - again)}" if tools - again else "")


def conditions(result):
    """What a figure has to say below its title."""
    machine = result["machine"]
    memory = f", {machine['memory'] / 2**30:.0f} GiB" if machine.get("memory") else ""
    return (f"{result['title']}; scale {result['scale']:g}: {amount(result)}, {result['cache']} caches, "
            f"{'median of ' * (rounds(result) != 'one round')}{rounds(result)}; {machine['cores']} cores{memory}, {result['date'][:10]}")
