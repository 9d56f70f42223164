"""The sweep: every knob is where the list says, a build has one knob turned and leaves nothing behind, and what is better is told
from what is another choice."""

import json
import os
import subprocess
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from unittest import mock

from harness.sweep import judge, knobs, page
from harness.sweep.build import PACKAGE, Builds
from harness.tools.drumlin import program
from harness.workloads import everything


class Knobs(unittest.TestCase):
    def test_all_are_where_the_list_says(self):
        knobs.check()
        self.assertGreater(len(knobs.everything()), 30)
        runs = {run.removesuffix(knobs.FAR) for knob in knobs.everything().values() for run in knob.runs}
        self.assertLessEqual(runs, set(everything()))

    def test_one_that_moved_is_told(self):
        knob = knobs.Knob("block", "a.rs", "const A: usize = {};", "1 << 20", ("5",), ("W3",))
        self.assertEqual(knob.turned("x\nconst A: usize = 1 << 20;\n", "5"), "x\nconst A: usize = 5;\n")
        for source in ("const A: usize = 1 << 21;", "const A: usize = 1 << 20;" * 2):
            with self.assertRaisesRegex(knobs.Moved, "block"):
                knob.turned(source, "5")


class AKnobIsMeasured(unittest.TestCase):
    def test_the_program_beside_itself(self):
        script = SourceFileLoader("sweep", str(knobs.ROOT / "bench" / "sweep"))
        sweep = module_from_spec(spec_from_loader("sweep", script))
        script.exec_module(sweep)
        knob = knobs.Knob("none", "a.rs", "{}", "1", ("2",), ("W1",))
        builds = mock.Mock(make=lambda *_: program())
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(sweep.SCALES, {"W1": 0.002}):
            usual = {"work": Path(folder), "repeat": 1, "loop": False, "settle": 0.1, "check": "first", "count_syncs": False}
            told = sweep.measured(knob, builds, usual)
        [run] = told["runs"]
        self.assertEqual(list(run["values"]), ["2"])
        for figures in (run["default"], run["values"]["2"]):
            self.assertGreater(figures["first, s"][0], 0)
            self.assertGreater(figures["restore, s"][0], 0)
            self.assertGreater(figures["repository, MB"][0], 1e5)


class BuildsAreMade(unittest.TestCase):
    def test_of_a_program_that_there_is(self):
        told = subprocess.run(["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"], cwd=knobs.ROOT, check=True, capture_output=True)
        programs = {(package["name"], target["name"]) for package in json.loads(told.stdout)["packages"] for target in package["targets"] if "bin" in target["kind"]}
        self.assertIn((PACKAGE, "drumlin"), programs)

    def test_with_one_knob_turned_once_a_state_of_the_sources(self):
        knob = knobs.Knob("size", "crates/a.rs", "A = {};", "1", ("2",), ("W3",))
        with tempfile.TemporaryDirectory() as folder:
            root, bin_ = Path(folder, "root"), Path(folder, "bin")
            (root / "crates").mkdir(parents=True)
            (root / "Cargo.toml").write_text("")
            (root / "crates" / "a.rs").write_text("A = 1;\n")
            (root / "notes").write_text("not built")
            subprocess.run(["git", "init", "-q"], cwd=root, check=True)
            # A compiler that gives what it is given, and counts.
            bin_.mkdir()
            cargo = bin_ / "cargo"
            cargo.write_text('#!/bin/sh\nmkdir -p "$CARGO_TARGET_DIR/release" && cat crates/a.rs > "$CARGO_TARGET_DIR/release/drumlin" && echo >> ../count\n')
            cargo.chmod(0o755)
            with mock.patch.dict(os.environ, {"PATH": f"{bin_}:{os.environ['PATH']}"}):
                builds = Builds(Path(folder, "work"), root)
                builds.copy()
                self.assertEqual(builds.make().read_text(), "A = 1;\n")
                self.assertEqual(builds.make(knob, "2").read_text(), "A = 2;\n")
                self.assertEqual(builds.make(knob, "2").read_text(), "A = 2;\n")
                self.assertEqual((builds.sources / "crates" / "a.rs").read_text(), "A = 1;\n")
                self.assertFalse((builds.sources / "notes").exists())
                self.assertEqual((builds.folder / "count").read_text().count("\n"), 2)
                (root / "crates" / "a.rs").write_text("A = 1; B\n")
                (root / "crates" / "b.rs").write_text("")
                builds.copy()
                self.assertEqual(builds.make(knob, "2").read_text(), "A = 2; B\n")
                (root / "crates" / "b.rs").unlink()
                builds.copy()
                self.assertFalse((builds.sources / "crates" / "b.rs").exists())
            self.assertEqual((root / "crates" / "a.rs").read_text(), "A = 1; B\n")


def columns(first, memory=50e6, repository=10e6):
    found = {"first, s": first, "no change, s": 0.1, "restore, s": 1.0, "memory of first, MB": memory, "memory of restore, MB": 50e6, "repository, MB": repository}
    return {heading: figure if isinstance(figure, list) else [figure] * 3 for heading, figure in found.items()}


class Verdicts(unittest.TestCase):
    def test_better_worse_another_choice_and_the_same(self):
        default = columns(1.0)
        for said, other in (("better", columns(0.8)), ("worse", columns(1.2)), ("another choice", columns(0.8, 80e6)), ("same", columns(0.95, 53e6)),
                            ("failed", columns(None))):
            with self.subTest(said):
                self.assertEqual(judge.verdict(default, other), said)

    def test_what_nobody_feels_is_no_difference(self):
        self.assertEqual(judge.verdict({**columns(1.0), "no change, s": [0.030] * 3}, {**columns(1.0), "no change, s": [0.015] * 3}), "same")

    def test_rounds_that_overlap_are_no_difference(self):
        default = columns([1.0, 1.1, 1.4])
        self.assertEqual(judge.verdict(default, columns([0.7, 0.8, 1.05])), "same")
        self.assertEqual(judge.verdict(default, columns([0.7, 0.8, 0.95])), "better")
        self.assertEqual(judge.verdict(default, columns([1.3, 1.5, 1.6])), "same")
        self.assertEqual(judge.verdict(default, columns([1.45, 1.5, 1.6])), "worse")

    def test_a_knob_is_judged_by_what_it_touches(self):
        faster = columns(0.8)
        self.assertEqual([judge.verdict(columns(1.0), faster, touches) for touches in (None, "backup", "restore")], ["better", "better", "same"])
        slower = {**columns(1.0), "memory of restore, MB": [90e6] * 3}
        self.assertEqual([judge.verdict(columns(1.0), slower, touches) for touches in (None, "backup", "restore")], ["worse", "same", "worse"])

    def test_how_far_the_default_is_from_the_best_point_of_each_column(self):
        default = {**columns([1.0, 1.1, 1.4]), "change, s": [2.0] * 3}
        found = judge.distance(default, [columns(0.9, 40e6), {**columns(1.3), "change, s": [1.6] * 3}], "backup")
        self.assertEqual({heading: round(times, 2) for heading, times in found.items()},
                         {"first, s": 1.22, "no change, s": 1, "change, s": 1.25, "memory of first, MB": 1.25, "repository, MB": 1})

    def test_what_a_third_step_has_changed_counts(self):
        done = {"status": "ok", "wall": 1, "memory": 1, "repository": {"bytes": 5}}
        changed = {**done, "wall": 3, "repository": {"bytes": 8}}
        rounds = [{"tool": "default", "steps": {"first": done, "no change": done, "scrambled": changed}, "restores": {"scrambled": done}}]
        figures = judge.figures({"steps": ["first", "no change", "scrambled"], "restores": ["scrambled"], "rounds": rounds})["default"]
        self.assertEqual([figures[heading] for heading in ("change, s", "repository, MB")], [[3], [8]])

    def test_the_median_of_all_rounds_counts(self):
        rounds = [{"tool": "default", "steps": {"first": {"status": "ok", "wall": wall, "memory": 1, "repository": {"bytes": 5}},
                                                "no change": {"status": "ok", "wall": 1, "memory": 1, "repository": {"bytes": 7}}},
                   "restores": {"no change": {"status": "failed"}}} for wall in (1, 9, 2)]
        figures = judge.figures({"steps": ["first", "no change"], "restores": ["no change"], "rounds": rounds})["default"]
        self.assertEqual([judge.middle(figures, heading) for heading in ("first, s", "repository, MB", "restore, s")], [2, 7, None])

    def test_the_page_says_what_is_better(self):
        runs = [{"workload": "W3", "scale": 0.1, "default": columns(1.0), "values": {"2": columns(0.5), "3": columns(1.5, 20e6), "4": columns(1.01)}}]
        sweep = {"date": "2026-01-02T00:00:00Z", "machine": {"processor": "p", "cores": 2, "kernel": "k"}, "repeat": 3,
                 "knobs": [{"name": "size", "file": "f", "default": "1", "touches": None, "date": "2026-01-01T00:00:00Z", "commit": "0123456789ab",
                            "machine": {"processor": "q", "cores": 4, "kernel": "m"}, "runs": runs}]}
        text = page.page(sweep)
        self.assertIn("Machine: q, 4 cores, Linux m. 2026-01-01, commit 0123456789ab, 3 rounds", text, "that of the knob")
        self.assertIn("- size = `2`, W3 at 0.1: first 2.00 times as good", text)
        self.assertIn("| | `3` | | × 1.50 |  |  |  | × 0.40 |  |  | another choice |", text)
        self.assertIn("| first | 0 | 1 | 2.00 times: size, W3 |", text)
        self.assertIn("| no change | 1 | 0 | – |", text)
        self.assertIn("| memory of first | 0 | 1 | 2.50 times: size, W3 |", text)
        self.assertNotIn("\n| change |", text, "the workload has no third step")
        self.assertIn("1 knobs, 3 comparisons: 1 better, 0 worse, 1 another choice, 1 same, 0 failed", text)


if __name__ == "__main__":
    unittest.main()
