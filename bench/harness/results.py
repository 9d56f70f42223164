"""Results as data: what a run measured, in a file of its own, and nothing but such files makes the report.

    schema, workload, title, scale, seed, repeat, cache (hot or cold), six, stream, date, machine, ground
    load       processes that waited for a core when it began; wire: rtt_ms, rate (bytes a second) between client and server
    data       entries, files, bytes, and where they come from
    steps      the steps' names, in order; restores: those that are restored
    tools      by name: version, compresses, encrypts, of (the row that it is a variant of), syncs (calls by name)
    rounds     one a tool and round: tool, round, took (seconds of all of it, with what is not measured), steps and restores: by a
               step's name
                 status   ok | failed | over ten times | wrong | not run
                 wall, cpu (seconds), memory, server_cpu, server_memory (bytes; None without a server)
                 repository, local: bytes, disk, files, entries (of a backup); wire: up, down (bytes), turns
                 output (the last lines of one that failed), limit (seconds, of one that was killed), check (of a restore)

A file is written anew after each round, whole or not at all: a run that is stopped leaves what it has measured.
"""

import json
import os
from pathlib import Path

SCHEMA = 1
FOLDER = Path(__file__).resolve().parent.parent / "results"


def file_name(result):
    """Workload, scale, cache, date: two runs of a day with the same are told apart by the time."""
    date = result["date"].replace(":", "").replace("-", "")
    return f"{result['workload']}-{result['scale']:g}-{result['cache']}-{date}.json"


def write(result, folder=FOLDER):
    """Writes a result; its path."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(result)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)
    return path


def read(path):
    """A result; ValueError if it is none of this schema."""
    result = json.loads(Path(path).read_text())
    if result.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {result.get('schema')}, this program reads {SCHEMA}")
    return result


def newest(folder=FOLDER):
    """The results in a folder, the newest of each workload, scale and kind of cache, in that order."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        result = read(path)
        key = (result["workload"], result["scale"], result["cache"])
        if key not in found or found[key]["date"] < result["date"]:
            found[key] = result
    return [found[key] for key in sorted(found)]


def sweep(folder=FOLDER):
    """What `bench/sweep` has measured; None before that."""
    path = Path(folder) / "sweep" / "sweep.json"
    return json.loads(path.read_text()) if path.exists() else None


def write_sweep(measured, folder=FOLDER):
    """Writes it, whole or not at all; its path."""
    path = Path(folder) / "sweep" / "sweep.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n")
    os.replace(part, path)
    return path


def figures(result, part, step, what):
    """All rounds' figures of a step by tool: part is `steps` or `restores`; what is a path such as `repository.bytes`."""
    found = {}
    for round_ in result["rounds"]:
        value = round_[part].get(step)
        ok = value is not None and value["status"] == "ok"
        for key in what.split("."):
            value = value.get(key) if ok and value is not None else None
        found.setdefault(round_["tool"], []).append(value if ok else None)
    return found


def status(result, part, step, tool):
    """The worst that became of a tool's step in any round: (status, the record that says so)."""
    order = ["ok", "not run", "over ten times", "failed", "wrong"]
    worst = ("not run", {})
    rounds = [r[part][step] for r in result["rounds"] if r["tool"] == tool and step in r[part]]
    for index, record in enumerate(rounds):
        if index == 0 or order.index(record["status"]) > order.index(worst[0]):
            worst = (record["status"], record)
    return worst
