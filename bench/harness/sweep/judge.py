"""Whether a value is better than the default. Pure.

One is better if it gains more than a tenth in one column of a workload and loses more than a tenth in none of that workload's: a
chunk of half the size that finds more to deduplicate and takes twice the memory is another choice, and no better one. Differences
that nobody feels, and that two runs of the same program have, are none.
"""

from .. import stats

# What counts as a gain, and as a loss.
PART = 1.10
# Heading, where the figure stands in a round, and how large a difference must be to count.
COLUMNS = (
    ("first, s", "steps", 0, "wall", 0.05),
    ("no change, s", "steps", 1, "wall", 0.02),
    ("restore, s", "restores", -1, "wall", 0.05),
    ("memory of first, MB", "steps", 0, "memory", 4e6),
    ("memory of restore, MB", "restores", -1, "memory", 4e6),
    ("repository, MB", "steps", 1, "repository", 1e5),
)


def figures(result):
    """By tool and column the median of all rounds; None where there is none."""
    found = {}
    for heading, part, place, what, _ in COLUMNS:
        step = result[part][place]
        for round_ in result["rounds"]:
            record = round_[part].get(step)
            value = record[what] if record and record["status"] == "ok" else None
            if what == "repository" and value is not None:
                value = value["bytes"]
            found.setdefault(round_["tool"], {}).setdefault(heading, []).append(value)
    return {tool: {heading: stats.median(values) for heading, values in columns.items()} for tool, columns in found.items()}


def compare(default, other):
    """The default's figures and another value's: (gains, losses), each a ratio above 1 by column."""
    gains, losses = {}, {}
    for heading, _, _, _, least in COLUMNS:
        ours, theirs = default.get(heading), other.get(heading)
        if not ours or not theirs or abs(ours - theirs) < least:
            continue
        if ours > theirs * PART:
            gains[heading] = ours / theirs
        elif theirs > ours * PART:
            losses[heading] = theirs / ours
    return gains, losses


def verdict(default, other):
    """`better`, `worse`, `another choice` or `same`; `failed` where a value doesn't work at all."""
    if any(default.get(heading) is not None and other.get(heading) is None for heading, *_ in COLUMNS):
        return "failed"
    gains, losses = compare(default, other)
    return {(True, False): "better", (False, True): "worse", (True, True): "another choice", (False, False): "same"}[bool(gains), bool(losses)]
