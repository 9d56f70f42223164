"""What is measured apart: no workload with steps and peers, but a table of its own, kept as data like all others.

    schema, name (of its page), title, date, machine, commit (as in all other results)
    said       how it was measured: sentences
    programs   by name: version, program (the first digits of its SHA-256)
    columns    of each: heading, unit (`s`, `MB`, `MB/s`, `%`, or empty)
    rows       of each: name, and by column the figures of all rounds, in seconds, bytes and parts of one; None: it has none
    commands   by program: of each step its name and the command; where there are any
"""

import json
import os
import re
from pathlib import Path

from .machine import commit, digest, machine, today
from .report.figures import number
from .report.tables import measured_by, version
from .results import FOLDER, SCHEMA, minute
from .stats import median, spread

OWN = FOLDER / "own"
# What one of a unit is.
ONE = {"s": 1.0, "MB": 1e6, "MB/s": 1e6, "%": 0.01, "": 1.0}


def table(name, title, said, adapters, columns, rows, commands=None):
    """A table as it is kept; `adapters`: of the programs (harness/tools); `rows`: (name, figures by column); `commands`: by program, (step, command)."""
    programs = {row.name: {"version": row.version(), "program": digest(row.binary())} for row in adapters}
    return {"schema": SCHEMA, "name": name, "title": title, "date": today(), "commit": commit(), "machine": machine(), "said": list(said), "programs": programs,
            "columns": [list(column) for column in columns], "rows": [[row, list(figures)] for row, figures in rows],
            "commands": {name: [list(step) for step in of] for name, of in (commands or {}).items()}}


def write(made, folder=OWN):
    """Writes it, whole or not at all; its path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{made['name']}-{made['date'].replace(':', '').replace('-', '')}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)
    return path


def newest(folder=OWN):
    """The newest of each name, by name."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        made = json.loads(path.read_text())
        if made["name"] not in found or found[made["name"]]["date"] < made["date"]:
            found[made["name"]] = made
    return [found[name] for name in sorted(found)]


def tell(made, folder=OWN):
    """Keeps it, and prints it for the one who has just made it."""
    path = write(made, folder)
    print(f"{' '.join(made['said'])}\n\n{markdown(made)}\n\nin {path}")


def by(name):
    """Who makes a table of this name: one that has a number at its end is made for each of something."""
    return re.sub(r"-\d+$", "", name)


def of(rounds, *whats):
    """By column the figures of rounds of `measure.run`, of these kinds."""
    return [[round_ and round_[what] for round_ in rounds] for what in whats]


def markdown(made):
    """Its rows: medians, and behind them the least and the most."""
    heads = [f"{heading}, {unit}" if unit else heading for heading, unit in made["columns"]]
    lines = ["| | " + " | ".join(heads) + " |", "|---" + "|---:" * len(heads) + "|"]
    for name, figures in made["rows"]:
        lines.append(f"| {name} | " + " | ".join(cell(of, unit) for of, (_, unit) in zip(figures, made["columns"])) + " |")
    return "\n".join(lines)


def cell(figures, unit):
    """The figures of all rounds, as the table shows them."""
    there = [figure / ONE[unit] for figure in figures or [] if figure is not None]
    if not there:
        return "–"
    middle, (least, most) = number(median(there)), map(number, spread(there))
    return middle if least == most else f"{middle} <sub>{least}–{most}</sub>"


def page(made):
    """Its page, in Markdown."""
    machine_ = made["machine"]
    memory = f", {machine_['memory'] / 2**30:.0f} GiB of memory" if machine_.get("memory") else ""
    programs = "; ".join(f"{name}: {version(told)}" for name, told in made["programs"].items())
    return "\n\n".join([
        f"# {made['title']}",
        f"Made by `bench/report` from `bench/results/own`, where `bench/{by(made['name'])}` has put it; not to be edited. [How to read this](README.md).",
        " ".join(made["said"]),
        f"Machine: {machine_['processor']}, {machine_['cores']} cores{memory}, Linux {machine_['kernel']}, {machine_['system']}. {minute(made)}{measured_by(made)}. Programs: {programs}.",
        markdown(made),
        *commands(made),
    ]) + "\n"


def commands(made):
    """What was called, if it was kept, by program and step: a part of the page, or none."""
    lines = [f"- {name}, {step}: `{command}`" for name, of in made.get("commands", {}).items() for step, command in of]
    return ["## The commands\n\n" + "\n".join(lines)] if lines else []
