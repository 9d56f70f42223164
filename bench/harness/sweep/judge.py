"""Whether a value is better than the default. Pure.

One is better if it gains more than a tenth in one column of a workload and loses more than a tenth in none of that workload's: a
chunk of half the size that finds more to deduplicate and takes twice the memory is another choice, and no better one. Differences
that nobody feels, and those between rounds that two runs of the same program could have had, are none; nor does a knob of restores
have a say in how long backups take.
"""

from .. import stats

# What counts as a gain, and as a loss.
PART = 1.10
# Steps of a workload that are run: what has changed in the third is where small pieces are worth what they cost.
STEPS = 3
# Heading, where the figure stands in a round, and how large a difference must be to count. Figures are lists, one of each round.
COLUMNS = (
    ("first, s", "steps", 0, "wall", 0.05),
    ("no change, s", "steps", 1, "wall", 0.02),
    ("change, s", "steps", 2, "wall", 0.05),
    ("restore, s", "restores", -1, "wall", 0.05),
    ("memory of first, MB", "steps", 0, "memory", 4e6),
    ("memory of restore, MB", "restores", -1, "memory", 4e6),
    ("repository, MB", "steps", -1, "repository", 1e5),
)


def figures(result):
    """By tool and column what each round had; None where one had none. Steps that a workload hasn't have no column."""
    found = {}
    for heading, part, place, what, _ in COLUMNS:
        if place >= len(result[part]):
            continue
        step = result[part][place]
        for round_ in result["rounds"]:
            record = round_[part].get(step)
            value = record[what] if record and record["status"] == "ok" else None
            if what == "repository" and value is not None:
                value = value["bytes"]
            found.setdefault(round_["tool"], {}).setdefault(heading, []).append(value)
    return found


def columns(touches):
    """The headings that a knob can matter to, which `touches` that part alone; None: both."""
    return [heading for heading, *_ in COLUMNS if touches is None or ("restore" in heading) == (touches == "restore")]


def middle(figures, heading):
    """The median of a column's rounds; None unless all of them have a figure."""
    values = figures.get(heading) or [None]
    return None if None in values else stats.median(values)


def compare(default, other, touches=None):
    """The default's figures and another value's: (gains, losses), each a ratio of medians above 1 by column. A difference counts
    where every round of the one is better than every round of the other."""
    gains, losses = {}, {}
    least_of = {heading: least for heading, *_, least in COLUMNS}
    for heading in columns(touches):
        ours, theirs = middle(default, heading), middle(other, heading)
        if not ours or not theirs or abs(ours - theirs) < least_of[heading]:
            continue
        if ours > theirs * PART and min(default[heading]) > max(other[heading]):
            gains[heading] = ours / theirs
        elif theirs > ours * PART and min(other[heading]) > max(default[heading]):
            losses[heading] = theirs / ours
    return gains, losses


def distance(default, others, touches=None):
    """How many times the best of all points the default is, by column: 1 where nothing is better, or what is better is so by less than
    counts. Unlike `compare` it asks nothing of the single rounds."""
    found = {}
    least_of = {heading: least for heading, *_, least in COLUMNS}
    for heading in columns(touches):
        ours = middle(default, heading)
        theirs = [figure for figure in (middle(other, heading) for other in others) if figure]
        if ours and theirs:
            found[heading] = ours / min(theirs) if ours - min(theirs) >= least_of[heading] else 1.0
    return found


def verdict(default, other, touches=None):
    """`better`, `worse`, `another choice` or `same`; `failed` where a value doesn't work at all."""
    # The memory of what is over at once may not be known.
    if any(middle(default, heading) is not None and middle(other, heading) is None for heading, _, _, what, _ in COLUMNS if what != "memory"):
        return "failed"
    gains, losses = compare(default, other, touches)
    return {(True, False): "better", (False, True): "worse", (True, True): "another choice", (False, False): "same"}[bool(gains), bool(losses)]
