"""The rounds: every tool is taken through a workload's steps, in turns, on fresh ground, as often as was asked for.

What fails or takes too long is a part of the result. Between two tools nothing stays: not the file system, not a process, not
what has changed in the tree.
"""

import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import suppress

from . import measure, results, syncs
from .ground import Ground, drop_caches, forget, room
from .machine import commit, digest, load, machine, today
from .tools import Place
from .truth import Truth
from .weigh import weigh
from .workloads.base import same_times

# Of the machine's memory, what a tree may take that is read into the cache beforehand.
CACHE_PART = 0.6
# Of its free memory, what is used once before each step besides twice the data's size.
FRESH_BYTES = 256 << 20

# What may go wrong around a command that is measured.
FAILURES = (OSError, subprocess.SubprocessError, measure.Failed)


class Unfit(Exception):
    """The workload itself failed: no tool is to blame."""


class Rounds:
    """One run of a workload. `write` is called with the result after each round of a tool. `begun`: the result of a run of the same,
    which is taken up where it stopped."""

    def __init__(self, workload, tools, options, write=lambda result: None, begun=None):
        self.workload, self.tools, self.options, self.write, self.taken_up = workload, tools, options, write, begun
        self.best, self.out = {}, set()
        self.truth = Truth(workload, options.work)

    def run(self):
        """Makes the data, does all rounds; the result."""
        options, workload = self.options, self.workload
        measure.adopt()
        # Before all processors make the data.
        waiting = load()
        options.work.mkdir(parents=True, exist_ok=True)
        say(f"{workload.name}: making data at scale {workload.scale:g}")
        try:
            tree, told = workload.data(options.work / "data")
        except FAILURES as error:
            raise Unfit(f"its data can't be made: {said(error)}") from error
        steps = [step.name for step in workload.steps()]
        self.result = {
            "schema": results.SCHEMA, "workload": workload.name, "title": workload.title, "scale": workload.scale, "seed": workload.seed,
            "repeat": options.repeat, "near": options.near, "cache": "cold" if options.cold else "hot", "six": workload.six, "stream": workload.stream,
            "date": today(), "commit": commit(), "machine": machine(), "load": waiting,
            "options": {name: getattr(options, name) for name in ("floor", "ceiling", "settle", "check")},
            "wire": {"far": options.far, "rtt_ms": options.rtt_ms, "rate": options.rate},
            "ground": "ext4 with a journal in a loop file, one for the source, a fresh one for each tool" if options.loop else "a folder",
            "data": {"source": workload.source, **told}, "steps": steps, "restores": [steps[number - 1] for number in workload.restored()],
            "tools": {tool.name: self.describe(tool) for tool in self.tools}, "rounds": [], "complete": False,
        }
        # Room for every step's state as it is, with hard links of all, and for a restore: making a larger file system takes longer than most tools.
        self.needed = told["disk"] * (2 * len(steps) + 4) + told["entries"] * (len(steps) + 2) * 4096 + (8 << 30)
        with Ground(options.work, "source", int(told["disk"] * 1.3) + told["entries"] * 512 + (1 << 30), options.loop) as self.ground:
            if options.loop and not self.ground.is_direct:
                self.result["ground"] += ", without direct I/O, which was refused"
            if self.taken_up:
                self.take_up(self.taken_up)
            # Written out: otherwise the first tool shares the disk with it.
            measure.run(f"cp -a {tree} {self.ground.path}/tree && sync")
            self.tree = self.ground.path / "tree"
            self.begun = int(time.time())
            changes = workload.stream or any(step.change for step in workload.steps())
            self.kept, self.changed = self.ground.keep() if changes else None, False
            try:
                for number in range(1, options.repeat + 1):
                    for tool in self.order(number):
                        self.one(number, tool)
            finally:
                if self.kept:
                    forget(self.kept)
                self.truth.forget()
        self.result["complete"] = True
        return self.result

    def order(self, number):
        """The tools of a round, thrown by what is run and when it began: none comes always first, or always after the same, on no page and on
        no two of them. A run that is taken up goes on in its own order."""
        thrown = [self.workload.name, self.workload.scale, self.workload.seed, self.result["date"], number]
        return random.Random("/".join(map(str, thrown))).sample(self.tools, len(self.tools))

    def take_up(self, begun):
        """Goes on with a run of the same programs on the same data; Unfit if it is not the same."""
        if other := results.differences(begun, self.result):
            raise Unfit(f"the run of {begun['date']} can't be taken up, as these are others now: {', '.join(other)}")
        self.result |= {"date": begun["date"], "load": begun["load"], "rounds": [*begun["rounds"]]}
        for record in begun["rounds"]:
            if went_wrong(record):
                self.out.add(record["tool"])
            for part in ("steps", "restores"):
                for name, figures in record[part].items():
                    if figures["status"] == "ok":
                        self.noted(record["tool"], part, name, figures["wall"])

    def noted(self, tool, part, name, wall):
        """Keeps the best time of a step. Not Drumlin's: where it alone is fast, nobody is to be killed for that."""
        if not tool.startswith(results.OURS):
            self.best[part, name] = min(wall, self.best.get((part, name), wall))

    def is_far_behind(self, tool):
        """Whether more rounds of a tool would tell nothing of who is first: in each step of its first round it took more than so many times the best
        of that round. The best of those that compress or encrypt as well, if it does."""
        does = self.result["tools"]
        like = [name for name in does if all(does[name][what] or not does[tool][what] for what in ("compresses", "encrypts"))]
        times = {}
        for record in self.result["rounds"]:
            for part in ("steps", "restores"):
                for name, figures in record[part].items():
                    if record["round"] == 1 and figures["status"] == "ok" and record["tool"] in like:
                        times.setdefault((part, name), {})[record["tool"]] = figures["wall"]
        own = [of[tool] / min(of.values()) for of in times.values() if tool in of]
        return bool(self.options.near and own) and min(own) > self.options.near

    def describe(self, row):
        told = {"version": row.version(), "program": digest(row.binary()), "deduplicates": row.deduplicates, "compresses": row.compresses, "encrypts": row.encrypts, "of": row.of, "note": row.note, "syncs": None}
        if self.options.count_syncs and row.trees:
            key = f"{row.name}: {told['version']}, {told['program']}{', far' * (self.options.far and row.far)}"
            told["syncs"] = syncs.remembered(self.options.work / "syncs.json", key, lambda: self.syncs(row))
        return told

    def syncs(self, row):
        """Counts a tool's syncing calls on a small tree, in a plain folder."""
        root = self.options.work / "syncs"
        shutil.rmtree(root, ignore_errors=True)
        syncs.small_tree(root / "source")
        place = Place(root / "place", root / "source", far=self.options.far)
        place.make()
        tool = row(place)
        try:
            tool.begin()
            return syncs.count(tool)
        except FAILURES:
            return None
        finally:
            with suppress(*FAILURES):
                tool.end()
            self.sweep()
            shutil.rmtree(root, ignore_errors=True)

    def one(self, number, row):
        """A round of a tool."""
        if row.name in self.out or any((record["tool"], record["round"]) == (row.name, number) for record in self.result["rounds"]):
            return
        if number > 1 and self.is_far_behind(row.name):
            return
        say(f"{self.workload.name}, round {number} of {self.options.repeat}: {row.name}")
        record = {"tool": row.name, "round": number, "date": today(), "commit": commit(), "steps": {}, "restores": {}}
        begun = time.monotonic()
        if self.kept and self.changed:
            self.ground.back(self.kept)
        self.changed = True
        with Ground(self.options.work, "ground", int(min(room(self.options.work) * 0.9, self.needed)), self.options.loop) as ground:
            tool = None
            try:
                place = Place(ground.path / "place", self.prepared(), self.options.rtt_ms, self.options.rate, self.options.far)
                place.make()
                tool = row(place)
                tool.begin()
                self.steps(tool, record)
                self.restores(tool, record)
            except FAILURES as error:
                failed = {"status": "failed", "output": said(error)}
                done = len(record["steps"]) == len(self.result["steps"])
                self.left_out(record, "steps", failed)
                self.left_out(record, "restores", failed if done else {"status": "not run"})
            finally:
                try:
                    if tool:
                        tool.end()
                except FAILURES as error:
                    say(f"  it can't be closed: {said(error)}")
                self.workload.finish()
                self.sweep()
        if went_wrong(record):
            self.out.add(row.name)
        record["took"] = round(time.monotonic() - begun, 2)
        self.result["rounds"].append(record)
        self.write(self.result)

    def prepared(self):
        """The tree to save, with all that must run meanwhile."""
        try:
            return self.workload.prepare(self.tree)
        except FAILURES as error:
            raise Unfit(said(error)) from error

    def change(self, number, step):
        """Changes the tree as a step says, the same way for each tool."""
        try:
            step.change(self.tree, self.workload.random("change", number))
        except FAILURES as error:
            raise Unfit(f"before “{step.name}”: {said(error)}") from error
        same_times(self.tree, self.begun, self.begun - 100 + number)

    def write_down(self, number):
        """Keeps what a restore of a step must give back."""
        try:
            self.truth.write_down(number, self.tree)
        except FAILURES as error:
            raise Unfit(f"what is to be given back can't be told: {said(error)}") from error

    def left_out(self, record, part, first):
        """The steps of a part that did not come: the first of them for a reason, the others because of it."""
        names = self.result[part]
        for name in names:
            if name not in record[part]:
                record[part][name], first = first, {"status": "not run"}

    def steps(self, tool, record):
        """All backups."""
        workload = self.workload
        for number, step in enumerate(workload.steps(), 1):
            if step.change:
                self.change(number, step)
            if self.checks(record):
                self.write_down(number)
            self.warm([self.tree])
            time.sleep(self.options.settle)
            save = tool.stream(number, workload.dump(self.tree)) if workload.stream else tool.backup(number)
            command = f"{{ {tool.init() or 'true'}; }} && {{ {save}; }}" if number == 1 else save
            figures = self.measured(tool, "steps", step.name, command)
            if figures["status"] == "ok":
                own, local = tool.weighed()
                figures["repository"], figures["local"] = weigh(own), weigh(local)
                self.noted(tool.name, "steps", step.name, figures["wall"])
            else:
                self.left_out(record, "steps", figures)
                return
            record["steps"][step.name] = figures

    def restores(self, tool, record):
        """All restores, each into an empty folder, held against what was there."""
        steps = self.result["steps"]
        if any(step["status"] == "over ten times" for step in record["steps"].values()):
            # What it was killed in the middle of is not its fault.
            self.left_out(record, "restores", {"status": "not run"})
            return
        for number in self.workload.restored():
            name = steps[number - 1]
            self.warm(tool.weighed()[0])
            if record["steps"].get(name, {}).get("status") != "ok":
                self.left_out(record, "restores", {"status": "not run"})
                return
            try:
                # What has to be looked up is asked here, outside of the measure.
                command = tool.unstream(number) if self.workload.stream else tool.restore(number)
            except (subprocess.SubprocessError, IndexError) as failed:
                say(f"  {name}: it doesn't say what it has of that: {failed}")
                figures = {"status": "failed", "exit": getattr(failed, "returncode", 1), "output": str(failed)}
            else:
                figures = self.measured(tool, "restores", name, command)
            if figures["status"] == "ok" and self.checks(record):
                self.truth.hold_against(tool, number, figures)
            # Who gives back what was not there sets no limit to others.
            if figures["status"] == "ok":
                self.noted(tool.name, "restores", name, figures["wall"])
            record["restores"][name] = figures
            shutil.rmtree(tool.place.out, ignore_errors=True)
            tool.place.out.mkdir()

    def measured(self, tool, part, name, command):
        """One step, measured; whatever becomes of it."""
        if self.options.cold:
            try:
                drop_caches()
            except OSError as error:
                raise Unfit(f"the kernel's caches can't be dropped: {error}") from error
        best = self.best.get((part, name))
        limit = self.options.ceiling if best is None else min(self.options.ceiling, max(self.options.floor, results.TIMES_BEST * best))
        wire = tool.wire()
        before = wire and wire.counts.get()
        helpers = [*self.workload.helpers(), *([wire.pid] if wire else [])]
        ours, apart = (tool.servers(), tool.clients()) if part in tool.pulls else (tool.clients(), tool.servers())
        try:
            figures = measure.run(command, tool.environment(), tool.place.root, limit, apart, helpers, tool.fine, ours, fresh=2 * self.result["data"]["disk"] + FRESH_BYTES)
        except measure.Failed as failed:
            say(f"  {name}: failed, status {failed.status}")
            return {"status": "failed", "exit": failed.status, "output": failed.output}
        except measure.Overdue as overdue:
            say(f"  {name}: killed after {overdue.limit:.0f} s")
            return {"status": "over ten times", "limit": overdue.limit, "best": best}
        if part in tool.pulls:
            for what in ("cpu", "memory"):
                figures[what], figures[f"server_{what}"] = figures[f"server_{what}"], figures[what]
        passed = wire and wire.since(before)
        return {"status": "ok", "command": tool.anywhere(command, self.options.work), **figures, "wire": passed if passed and any(passed.values()) else None}

    def checks(self, record):
        """Whether this round's restores are held against the source."""
        return self.options.check == "all" or (self.options.check == "first" and record["round"] == 1)

    def warm(self, paths):
        """Reads what is to be in the caches, if they are to be hot and it fits into the memory: the tree before each backup, whoever
        has just changed it or written down its truth; the repository before each restore, however it was written."""
        if not self.options.cold and max(self.result["data"]["bytes"], weigh(paths)["bytes"]) < CACHE_PART * (self.result["machine"]["memory"] or 0):
            read(paths)

    def sweep(self):
        """Ends what is left of a tool's processes: all that is below this process but what it has started itself."""
        left = measure.below([os.getpid()]) - {os.getpid()}
        if left:
            measure.end(left)


def read(paths):
    """Reads all files at and below some paths, several at once: what lies on a fresh mount comes from the disk."""
    with subprocess.Popen(["find", *map(str, paths), "-type", "f", "-print0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as found:
        subprocess.run(["xargs", "-0", "-n", "64", "-P", str(2 * os.cpu_count()), "cat"], stdin=found.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def went_wrong(record):
    """Whether anything in a round of a tool didn't go well."""
    return any(step["status"] != "ok" for part in ("steps", "restores") for step in record[part].values())


def said(error):
    """What an error says, with the last words of a command that failed."""
    last = getattr(error, "stderr", None) or b""
    last = last if isinstance(last, str) else last.decode(errors="replace")
    return f"{error}\n{last[-measure.TAIL_BYTES:]}".strip()


def say(text):
    print(text, file=sys.stderr, flush=True)
