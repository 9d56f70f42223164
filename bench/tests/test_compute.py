"""The parts that compute: medians and spreads, numbers, places on a drawing, what is counted and compared."""

import os
import random
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness import manifest, results, stats, syncs
from harness.machine import commit, made_of
from harness.options import Options
from harness.report import figures, svg
from harness.weigh import weigh
from harness.workloads.w1 import W1


class Stats(unittest.TestCase):
    def test_medians_leave_out_what_is_not_there(self):
        self.assertEqual(stats.median([9, None, 1, 2]), 2)
        self.assertEqual(stats.median([1, 2]), 1.5)
        self.assertIsNone(stats.median([None]))

    def test_spread(self):
        self.assertEqual(stats.spread([3, None, 1, 2]), (1, 3))
        self.assertIsNone(stats.spread([]))

    def test_the_best_is_the_least_that_is_there(self):
        self.assertEqual(stats.best({"a": None, "b": 2.0, "c": 1.0, "d": 1.0}), ("c", 1.0))
        self.assertIsNone(stats.best({"a": None}))

    def test_ratios_of_nothing_make_no_sense(self):
        self.assertEqual(stats.ratio(3, 2), 1.5)
        self.assertIsNone(stats.ratio(3, 0))
        self.assertIsNone(stats.ratio(None, 2))


class Numbers(unittest.TestCase):
    def test_three_digits_count(self):
        for value, said in ((None, "–"), (0, "0.00"), (0.0123, "0.012"), (0.5, "0.50"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (1234.5, "1,234"), (1234567, "1,234,567")):
            self.assertEqual(figures.number(value), said)

    def test_ticks_are_round_and_cover(self):
        for most in (0.013, 1, 7.2, 99, 101, 4321):
            marks = svg.ticks(most)
            self.assertGreaterEqual(marks[-1], most * 0.999)
            self.assertLessEqual(len(marks), 6)
        self.assertEqual(svg.ticks(8), [0, 2, 4, 6, 8])

    def test_powers_cover(self):
        for least, most, marks in ((0.03, 0.9, [0.02, 0.05, 0.1, 0.2, 0.5, 1]), (1, 1, [1, 2]), (7, 150, [5, 10, 20, 50, 100, 200])):
            for mark, expected in zip(svg.powers(least, most), marks, strict=True):
                self.assertAlmostEqual(mark, expected)

    def test_labels_are_moved_apart_and_stay_in_order_and_in_bounds(self):
        rng = random.Random(1)
        for _ in range(500):
            wanted = [rng.uniform(0, 300) for _ in range(rng.randrange(1, 18))]
            moved = svg.apart(wanted, 15, 0, 300)
            order = sorted(range(len(wanted)), key=lambda index: wanted[index])
            for one, next_ in zip(order, order[1:]):
                self.assertGreaterEqual(moved[next_] - moved[one], 15 - 1e-6)
            self.assertLessEqual(max(moved), 300 + 1e-6)
            self.assertGreaterEqual(min(moved), -1e-6)
        self.assertEqual(svg.apart([10, 100, 200], 15, 0, 300), [10, 100, 200])


class Trees(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.top = Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        tree = self.top / "tree"
        (tree / "a").mkdir(parents=True)
        (tree / "a" / "x").write_text("x" * 1000)
        (tree / "a-b").write_text("between a and a/x, where paths are compared as text")
        os.link(tree / "a" / "x", tree / "y")
        (tree / "l").symlink_to("nowhere")
        self.tree = tree
        manifest.write(tree, self.top / "m")

    def differs(self):
        return manifest.compare(self.top / "m", self.tree)

    def test_hard_links_weigh_once(self):
        weighed = weigh([self.tree])
        self.assertEqual((weighed["bytes"], weighed["files"], weighed["entries"]), (1000 + 51, 3, 5))
        self.assertEqual(weigh([self.top / "nothing"])["entries"], 0)

    def test_what_is_as_it_was_is_right(self):
        self.assertEqual(self.differs(), {"entries": 5, "wrong": 0, "first": None, "metadata": 0})

    def test_a_large_tree_is_read_in_parts_and_in_order(self):
        for number in range(40):
            (self.tree / "b" / f"{number}" / "c").mkdir(parents=True)
            (self.tree / "b" / f"{number}" / "c" / "d").write_text(f"{number}")
        (self.tree / "empty").mkdir()
        (self.tree / "to-b").symlink_to("b")
        self.assertGreater(len(manifest.parted(os.fsencode(self.tree))), manifest.PARTS_LEAST)
        there = list(manifest.lines(self.tree))
        self.assertEqual(there, list(manifest.below(os.fsencode(self.tree), (), True)))
        self.assertEqual(len(there), 5 + 1 + 3 * 40 + 2)
        self.assertEqual([line[0].split(b"/") for line in there], sorted(line[0].split(b"/") for line in there))

    def test_contents_of_the_same_size_and_time_are_found_wrong(self):
        stat = (self.tree / "a-b").stat()
        (self.tree / "a-b").write_text("B" * 51)
        os.utime(self.tree / "a-b", ns=(stat.st_mtime_ns, stat.st_mtime_ns))
        self.assertEqual((self.differs()["wrong"], self.differs()["first"]), (1, "a-b"))

    def test_missing_and_new_entries_are_wrong(self):
        (self.tree / "a" / "x").unlink()
        (self.tree / "zz").mkdir()
        self.assertEqual((self.differs()["wrong"], self.differs()["first"], self.differs()["entries"]), (2, "a/x", 4))

    def test_other_times_and_modes_are_told_apart_from_wrong(self):
        (self.tree / "a-b").chmod(0o600)
        os.utime(self.tree / "a", (1, 1))
        self.assertEqual((self.differs()["wrong"], self.differs()["metadata"]), (0, 2))


class Commits(unittest.TestCase):
    def test_a_checkout_is_named_with_a_mark_where_it_was_changed(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIsNone(commit(folder))
            git = lambda *words: subprocess.run(["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=e@example.org", *words], check=True, capture_output=True, text=True).stdout
            git("init", "--quiet")
            (Path(folder) / "inner").mkdir()
            (Path(folder) / "inner" / "file").write_text("a")
            git("add", "-A")
            git("commit", "--quiet", "-m", "one")
            head = git("rev-parse", "HEAD").strip()
            named = commit(f"{folder}/inner")
            self.assertEqual((named, len(named)), (head[:12], 12))
            (Path(folder) / "inner" / "file").write_text("b")
            self.assertEqual(commit(f"{folder}/inner"), f"{named}+")

    def test_what_a_program_in_go_was_made_of(self):
        with tempfile.TemporaryDirectory() as folder:
            go = Path(folder) / "go"
            for told, named in (("vcs.revision=0123456789abcdef\nbuild vcs.modified=false", ", commit 0123456789ab"),
                                ("vcs.revision=0123456789abcdef\nbuild vcs.modified=true", ", commit 0123456789ab+"), ("path x", ""), (None, "")):
                go.write_text(f"#!/bin/sh\necho '/bin/x: go1.26\nbuild {told}'\n" if told else "#!/bin/sh\nexit 1\n")
                go.chmod(0o755)
                with mock.patch.dict(os.environ, PATH=f"{folder}:/usr/bin:/bin"):
                    self.assertEqual(made_of("/bin/x"), named)
            with mock.patch.dict(os.environ, PATH="/nowhere"):
                self.assertEqual(made_of("/bin/x"), "")
        self.assertEqual(made_of(None), "")


class Syncs(unittest.TestCase):
    def test_calls_are_counted_once_each(self):
        log = "12 fsync(3 <unfinished ...>\n13 fdatasync(4)   = 0\n12 <... fsync resumed>)  = 0\n14  fsync(5) = 0\n"
        self.assertEqual(syncs.tally(log), {"fsync": 2, "fdatasync": 1})

    def test_a_version_is_counted_once_and_a_failure_again(self):
        with tempfile.TemporaryDirectory() as folder:
            answers = iter([None, {"fsync": 1}, {"fsync": 2}])
            ask = lambda key: syncs.remembered(f"{folder}/syncs.json", key, lambda: next(answers))
            self.assertEqual([ask("a 1"), ask("a 1"), ask("a 1"), ask("a 2")], [None, {"fsync": 1}, {"fsync": 1}, {"fsync": 2}])


class Results(unittest.TestCase):
    def test_written_and_read_again_and_the_newest_wins(self):
        with tempfile.TemporaryDirectory() as folder:
            for date in ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"):
                results.write({"schema": results.SCHEMA, "workload": "W1", "scale": 0.1, "cache": "hot", "date": date,
                               "wire": {"rtt_ms": 0.0, "rate": 0}, "tools": {}, "rounds": []}, folder)
            self.assertEqual([result["date"] for result in results.newest(folder)], ["2026-01-02T00:00:00Z"])

    def test_a_run_that_was_stopped_replaces_none(self):
        def write(date, tools, **more):
            results.write({"schema": results.SCHEMA, "workload": "W1", "scale": 0.1, "cache": "hot", "date": f"2026-01-0{date}T00:00:00Z",
                           "wire": {"far": False, "rtt_ms": 0.0, "rate": 0}, "tools": dict.fromkeys([*tools, "late"] if not more["complete"] else tools), "rounds": [{"tool": tool} for tool in tools], **more}, folder)
        with tempfile.TemporaryDirectory() as folder:
            write(1, ["tar", "cp"], complete=False)
            self.assertEqual([(result["date"][9], list(result["tools"])) for result in results.newest(folder)], [("1", ["tar", "cp"])])
            self.assertEqual(results.outdone(folder), ["W1 at 0.1, 2026-01-01T00:00:00Z: was stopped before it was done"])
            write(2, ["tar", "cp"], complete=True)
            write(3, ["tar"], complete=True)
            write(4, ["tar", "cp"], complete=False)
            self.assertEqual([result["date"][9] for result in results.newest(folder)], ["3"])
            self.assertEqual(results.outdone(folder), ["W1 at 0.1, 2026-01-03T00:00:00Z: an older one has cp, too"])
            workload = W1(0.1)
            self.assertEqual(results.last(folder, workload, Options(folder))["date"][9], "4")
            self.assertIsNone(results.last(folder, workload, Options(folder, cold=True)))
            self.assertIsNone(results.last(folder, workload, Options(folder, far=True)))

    def test_lines_are_told_apart_and_in_order(self):
        lines = [({"rtt_ms": 0.0, "rate": 0}, ""), ({"far": False, "rtt_ms": 40.0, "rate": 3e6}, "-40ms-3MBs"), ({"far": True, "rtt_ms": 0.0, "rate": 0}, "-far"),
                 ({"far": True, "rtt_ms": 1.0, "rate": 3e6}, "-far-1ms-3MBs"), ({"far": True, "rtt_ms": 50.0, "rate": (50e3, 20e3)}, "-far-50ms-50KBs-up-20KBs-down"),
                 ({"far": True, "rtt_ms": 50.0, "rate": (3e6, 0)}, "-far-50ms-3MBs-up-nolimit-down"), ({"far": True, "rtt_ms": 200.0, "rate": 0}, "-far-200ms")]
        with tempfile.TemporaryDirectory() as folder:
            for wire, name in reversed(lines):
                result = {"schema": results.SCHEMA, "workload": "W1", "scale": 0.02, "cache": "hot", "date": "2026-01-02T03:04:05Z", "wire": wire, "tools": {}, "rounds": []}
                self.assertEqual(results.write(result, folder).name, f"W1-0.02-hot{name}-20260102T030405Z.json")
            self.assertEqual([results.line_name(result) for result in results.newest(folder)], [name for _, name in lines])

    def test_runs_of_some_tools_each_are_one_if_they_are_of_the_same(self):
        def run(tool, minute, took=90, **more):
            return {"schema": results.SCHEMA, "workload": "W1", "seed": 1, "scale": 0.1, "cache": "hot", "date": f"2026-01-01T00:{minute:02}:00Z", "repeat": 1, "ground": "a folder",
                    "wire": {"rtt_ms": 0.0, "rate": 0}, "machine": {"cores": 2}, "data": {"files": 3}, "steps": ["first"], "restores": ["first"], "tools": {tool: {"version": "1"}},
                    "rounds": [{"tool": tool, "round": 1, "date": f"2026-01-01T00:{minute:02}:00Z", "took": took}], "complete": True, **more}
        whole = results.joined([run("tar", 1), run("cp", 0)])
        self.assertEqual((whole["date"][14:16], [record["tool"] for record in whole["rounds"]], sorted(whole["tools"])), ("00", ["cp", "tar"], ["cp", "tar"]))
        self.assertEqual((whole["joined"], whole["at_once"], whole["complete"]), (2, True, True))
        self.assertFalse(results.joined([run("tar", 2), run("cp", 0)])["at_once"])
        more = results.joined([whole, run("dd", 5)])
        self.assertEqual((more["joined"], more["at_once"], len(more["tools"])), (3, True, 3))
        self.assertFalse(results.joined([run("tar", 1, complete=False), run("cp", 0)])["complete"])
        for other, said in ((run("cp", 1), "has cp"), (run("tar", 1, data={"files": 4}), "data"), (run("tar", 1, machine={"cores": 4}), "cores"),
                            (run("tar", 1, cache="cold"), "not of the same"), (run("tar", 1, repeat=2), "not of the same")):
            with self.assertRaisesRegex(ValueError, said):
                results.joined([run("cp", 0), other])

    def test_another_schema_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "x.json"
            path.write_text('{"schema": 99}')
            self.assertRaises(ValueError, results.read, path)
