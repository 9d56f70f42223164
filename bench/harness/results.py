"""Results as data: what a run measured, in a file of its own, and nothing but such files makes the report.

    schema, workload, title, scale, seed, repeat, cache (hot or cold), six, stream, date, machine, ground
    near       how many times the best a tool may have taken in the step of its first round that was nearest to it, to have others; 0: any
    commit     of the checkout that measured, with a + where it had changes; None outside of one; not in older results
    joined     of how many runs, each of some of the tools, it was put together by bench/join; at_once: whether any two of them overlapped. Not in
               the results of one run
    load       processes that waited for a core when it began
    wire       between client and server: rtt_ms, rate (bytes a second, 0: no limit; one for both ways, or to the server and from it),
               far (whether all repositories were on a server, or only those of tools that have one of their own)
    data       entries, files, bytes, where they come from, and made_by: the first digits of a SHA-256 over the code and the pins that made them (not in older results)
    steps      the steps' names, in order; restores: those that are restored
    tools      by name: version, program (the first digits of its SHA-256), deduplicates, compresses, encrypts, of (the row that it is a variant of), syncs (calls by name)
    options    how it was done (harness/options.py): floor, ceiling, settle, check; not in older results
    rounds     one a tool and round: tool, round, date, commit (as above, of its own; not in older results), took (seconds of all of it, with what is not measured), steps and restores: by a
               step's name
                 status   ok | failed | over ten times | wrong | not run
                 wall, cpu (seconds), memory, server_cpu, server_memory (bytes; None without a server)
                 others, stolen (processor seconds of other programs meanwhile, and of the machine's host; not in older results)
                 repository, local: bytes, disk, files, entries (of a backup); wire: up, down (bytes), turns,
                 connections
                 output (the last lines of one that failed), limit (seconds, of one that was killed), check (of a restore)

    complete   whether all rounds were done that were asked for

A file is written anew after each round, whole or not at all: a run that is stopped leaves what it has measured, and can be taken up.
"""

import json
import os
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path

from .wire import both_ways

SCHEMA = 1
# What the rows of Drumlin's own begin with.
OURS = "drumlin"
# How many times the best a tool may take before it is stopped, or marked.
TIMES_BEST = 10
FOLDER = Path(__file__).resolve().parent.parent / "results"


def line(result):
    """What lies between client and server, to be compared and put in order: far, rtt_ms, rate to the server, rate from it."""
    wire = result["wire"]
    return (wire.get("far", False), wire["rtt_ms"], *both_ways(wire["rate"]))


def speed(rate):
    """A rate in words."""
    return "no limit" if not rate else f"{rate / 1e6:g} MB/s" if rate >= 1e6 else f"{rate / 1e3:g} KB/s"


def line_name(result):
    """The same as a part of a file's name: empty where there is nothing between client and server."""
    far, rtt_ms, up, down = line(result)
    rates = [speed(up)] if up == down else [f"{speed(up)}-up", f"{speed(down)}-down"]
    parts = ["far"] * far + [f"{rtt_ms:g}ms"] * bool(rtt_ms) + rates * bool(up or down)
    return "".join("-" + part.replace(" ", "").replace("/", "") for part in parts)


def minute(result):
    """When it began, in words."""
    return f"{result['date'][:16].replace('T', ' ')} UTC"


def file_name(result):
    """Workload, scale, cache, line, date: two runs of a day with the same are told apart by the time."""
    date = result["date"].replace(":", "").replace("-", "")
    return f"{result['workload']}-{result['scale']:g}-{result['cache']}{line_name(result)}-{date}.json"


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


def kind(result):
    """What has a page of its own: a workload, a scale, a kind of cache, a line."""
    return (result["workload"], result["scale"], result["cache"], line(result))


def all_in(folder=FOLDER):
    """All results in a folder."""
    return [read(path) for path in sorted(Path(folder).glob("*.json"))]


def newest(folder=FOLDER):
    """Of each kind the newest result that is complete; where none is, the newest, without the tools that it was stopped before. In the order of
    their kinds."""
    found = {}
    for result in all_in(folder):
        mark = (result.get("complete", True), result["date"])
        if kind(result) not in found or found[kind(result)][0] < mark:
            found[kind(result)] = (mark, result)
    return [of_who_ran(found[key][1]) for key in sorted(found)]


def of_who_ran(result):
    """A result without tools that have no round in it: who wasn't come to is no peer on its page."""
    ran = {record["tool"] for record in result["rounds"]}
    return result | {"tools": {name: told for name, told in result["tools"].items() if name in ran}}


def last(folder, workload, options):
    """The newest result of a workload under such options, complete or not; None if there is none."""
    wire = {"far": options.far, "rtt_ms": options.rtt_ms, "rate": options.rate}
    wanted = {"workload": workload.name, "scale": workload.scale, "cache": "cold" if options.cold else "hot", "wire": wire}
    return max((result for result in all_in(folder) if kind(result) == kind(wanted)), key=lambda result: result["date"], default=None)


def outdone(folder=FOLDER):
    """What to tell of the newest: each that isn't complete, or lacks tools that an older one has."""
    told, everything = [], all_in(folder)
    for result in newest(folder):
        name = f"{result['workload']} at {result['scale']:g}, {result['date']}"
        if not result.get("complete", True):
            told.append(f"{name}: was stopped before it was done")
        older = {tool for other in everything if kind(other) == kind(result) for tool in of_who_ran(other)["tools"]}
        if lacking := sorted(older - set(result["tools"])):
            told.append(f"{name}: an older one has {', '.join(lacking)}, too")
    return told


def differences(begun, now):
    """Why a run can't go on with another's rounds: all in which the two are not the same."""
    same = ("workload", "seed", "ground", "data", "steps", "restores")
    found = [name for name in same if begun[name] != now[name]]
    found += [name for name in ("processor", "cores", "memory", "kernel") if begun["machine"].get(name) != now["machine"].get(name)]
    # How it is done; older results don't tell all of it.
    asked, asks = begun.get("options", {}), now.get("options", {})
    found += [name for name in asked if asked[name] != asks.get(name, asked[name])]
    found += ["near"] * (begun.get("near", now.get("near")) != now.get("near"))
    # One that comes in only now does all rounds; one that has done none may stay away.
    for tool in sorted({record["tool"] for record in begun["rounds"]}):
        one, other = (result["tools"].get(tool, {}) for result in (begun, now))
        found += [tool] * any(one.get(what) != other.get(what) for what in ("version", "program"))
    return found


def joined(runs):
    """Runs of the same, on the same data and machine, each of other tools, as one result; ValueError where they are not that. A tool that was ten times slower than
    one of another run was not stopped for it."""
    first, *others = sorted(runs, key=lambda run: run["date"])
    for other in others:
        if kind(other) != kind(first) or other["repeat"] != first["repeat"]:
            raise ValueError(f"the runs of {first['date']} and {other['date']} are not of the same")
        if differ := differences({**first, "rounds": []}, other):
            raise ValueError(f"the runs of {first['date']} and {other['date']} are not on the same: {', '.join(differ)}")
    names = [name for run in runs for name in run["tools"]]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"more than one of the runs has {', '.join(twice)}")
    rounds = sorted((record for run in runs for record in run["rounds"]), key=lambda record: record["date"])
    return first | {
        "tools": {name: told for run in runs for name, told in run["tools"].items()}, "rounds": rounds, "complete": all(run.get("complete", True) for run in runs),
        "joined": sum(run.get("joined", 1) for run in runs),
        "at_once": any(run.get("at_once", False) for run in runs) or any(overlap(one, other) for one, other in combinations(runs, 2)),
    }


def overlap(one, other):
    """Whether any rounds of two runs went on at the same time."""
    of = lambda run: [(began := datetime.fromisoformat(record["date"]), began + timedelta(seconds=record["took"])) for record in run["rounds"] if "date" in record]
    return any(began < ended_ and began_ < ended for (began, ended) in of(one) for (began_, ended_) in of(other))


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
