"""The report: from a fixed result, the very tables and drawings that are kept in `expected/`; and docs/benchmarks is what
bench/report makes of bench/results.

`UPDATE=1 python3 -m unittest …` writes `expected/` anew, to be looked at before it is kept.
"""

import importlib.machinery
import importlib.util
import json
import os
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from harness import own, results, workloads
from harness.report import lines, named, page, png, trails
from harness.report.figures import REPOSITORY, SECONDS, Figure, are_level, column, hampered, is_over_ten_times, largest, share
from harness.report.tables import measured_by, version
from harness.stats import median
from harness.workloads.six import NAMES

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent.parent / "docs" / "benchmarks"
# An average letter of DejaVu Sans, in units of its size.
LETTER = 0.545


def record(wall, memory=20, size=None, files=10, status="ok", **more):
    """A step's record, of a few round figures."""
    if status != "ok":
        return {"status": status, **more}
    found = {"status": "ok", "wall": wall, "cpu": wall * 1.5, "memory": memory * 10**6, "server_cpu": None, "server_memory": None, "wire": None}
    if size:
        found["repository"] = {"bytes": size * 10**6, "disk": size * 10**6, "files": files, "entries": files + 2}
        found["local"] = {"bytes": 12345, "disk": 16384, "files": 2, "entries": 3}
    return {**found, **more}


def fixed():
    """Three rounds of six tools, one of which fails and one of which is killed."""
    result = json.loads((HERE / "fixed.json").read_text())
    speeds = {"drumlin": (1.0, 0.1, 1.1), "tar": (0.5, 0.5, 1.0), "tar-zstd": (0.9, 0.95, 0.8), "restic": (6.0, 2.0, 4.0)}
    for number in range(3):
        for tool, (first, again, back) in speeds.items():
            noise = 1 + number * 0.05
            check = {"entries": 1100, "wrong": 0, "first": None, "metadata": 7 if tool == "tar" else 0}
            result["rounds"].append({"tool": tool, "round": number + 1,
                                     "steps": {"first": record(first * noise, 50, 40, command=f"{tool} save"), "no change": record(again * noise, 30, 41, command=f"{tool} save")},
                                     "restores": {"no change": record(back * noise, 40, check=check, command=f"{tool} give\n  back")}})
    left = {"no change": {"status": "not run"}}
    result["rounds"].append({"tool": "failing", "round": 1, "restores": left,
                             "steps": {"first": record(0, status="failed", exit=1, output="trying\nno space | left\n"), **left}})
    result["rounds"].append({"tool": "endless", "round": 1, "restores": left,
                             "steps": {"first": record(0, status="over ten times", limit=60.0, best=0.5), **left}})
    return result


def six():
    """One round of three tools over the six steps."""
    result = {**fixed(), "workload": "W9", "wire": {"rtt_ms": 0.0, "rate": 0}, "six": True, "steps": list(NAMES), "restores": list(NAMES), "repeat": 1, "rounds": []}
    result["tools"] = {name: result["tools"][name] for name in ("drumlin", "tar", "restic")}
    for tool, speed, size in (("drumlin", 1.0, 40), ("tar", 2.0, 120), ("restic", 8.0, 45)):
        steps = {step: record(speed / (number + 1), 30 + number, size + (size if tool == "tar" else 3) * number, 10 + number) for number, step in enumerate(NAMES)}
        result["rounds"].append({"tool": tool, "round": 1, "steps": steps, "restores": {step: record(speed) for step in NAMES}})
    return result


def distant():
    """The first of them over a line, with the wire counted."""
    result = fixed()
    result["wire"] = {"far": True, "rtt_ms": 50.0, "rate": [50000, 20000]}
    for round_ in result["rounds"]:
        for part, up, down in (("steps", 12, 1), ("restores", 1, 34)):
            for step in round_[part].values():
                if step["status"] == "ok":
                    step.update(wire={"up": up * 10**6, "down": down * 10**6, "turns": 100 + up, "connections": 2}, server_cpu=0.5, server_memory=9 * 10**6)
    return result


def program():
    """bench/report, as a module."""
    loader = importlib.machinery.SourceFileLoader("report", str(HERE.parent / "report"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", loader))
    loader.exec_module(module)
    return module


class Snapshots(unittest.TestCase):
    maxDiff = None

    def test_pages_and_drawings_are_as_they_were(self):
        made = program().made([fixed(), distant(), six()])
        expected = HERE / "expected"
        if os.environ.get("UPDATE"):
            for name, text in made.items():
                (expected / name).parent.mkdir(parents=True, exist_ok=True)
                (expected / name).write_text(text)
        there = {str(path.relative_to(expected)) for path in expected.rglob("*") if path.is_file()}
        self.assertEqual(there, set(made))
        for name, text in made.items():
            with self.subTest(name):
                self.assertEqual((expected / name).read_text(), text)

    def test_drawings_are_sound_and_nothing_leaves_them(self):
        published = {path.name: path.read_text() for path in DOCS.glob("charts/*.svg")}
        for name, text in {**program().made([fixed(), distant(), six()]), **published}.items():
            if name.endswith(".svg"):
                root = ElementTree.fromstring(text)
                width, height = int(root.get("width")), int(root.get("height"))
                for word in root.iter("{http://www.w3.org/2000/svg}text"):
                    self.assertTrue(0 <= float(word.get("x")) <= width and 0 < float(word.get("y")) <= height, (name, word.text))
                    if word.get("text-anchor") == "start":
                        self.assertLessEqual(float(word.get("x")) + LETTER * float(word.get("font-size")) * len(word.text), width, (name, word.text))

    def test_names_at_the_ends_of_lines_do_not_touch(self):
        result = six()
        template = result["rounds"][2]
        for number in range(20):  # all at the same height
            name = f"peer-{number:02}"
            result["tools"][name] = result["tools"]["tar" if number % 2 else "restic"]
            result["rounds"].append({**template, "tool": name})
        drawing = ElementTree.fromstring(lines.lines(result, "steps", SECONDS, "many", True))
        panels = {}
        for word in drawing.iter("{http://www.w3.org/2000/svg}text"):
            if word.text in result["tools"]:
                panels.setdefault(word.get("x"), []).append((float(word.get("y")), word.text))
        self.assertEqual([len(names) for names in panels.values()], [12, 12])  # restic and ten, tar and ten, Drumlin in both
        for names in panels.values():
            self.assertIn("drumlin", [name for _, name in names])
            places = sorted(place for place, _ in names)
            self.assertTrue(all(b - a >= lines.LABEL - 0.11 for a, b in zip(places, places[1:])), places)

    def test_a_page_says_who_is_not_on_it(self):
        fewer = {**fixed(), "tools": {name: tool for name, tool in fixed()["tools"].items() if name != "tar"}}
        self.assertEqual(page.absent(fewer, [fixed(), fewer]), ["tar"])
        self.assertIn("other pages of its sort have them: tar.", page.page(fewer, [fixed(), fewer]))
        self.assertEqual(page.absent(fewer, [distant(), fewer]), [])
        self.assertEqual(page.absent(fixed(), [fixed(), fewer]), [])

    def test_data_that_are_not_what_was_to_be_are_told(self):
        short = {**fixed(), "scale": 1.0, "data": {**fixed()["data"], "entries": 50, "wanted": 200}}
        self.assertEqual(share(short), 0.25)
        self.assertIn("a run at 0.25 of the size", page.page(short))
        self.assertIn("| 1 (0.25) |", page.contents([short]))
        image = {**fixed(), "workload": "W7", "scale": 0.01, "data": {**fixed()["data"], "bytes": 1 << 30}}
        self.assertEqual(share(image), 0.125)
        self.assertEqual(share(fixed()), fixed()["scale"])

    def test_rows_that_the_host_hampered_are_named(self):
        result = fixed()
        for round_ in result["rounds"]:
            for part in ("steps", "restores"):
                for step in round_[part].values():
                    if step["status"] == "ok":
                        # Steps of restic and tar are long ones. The host took a twentieth of restic's, little of tar's, and most of a short one.
                        step |= {"others": 0.0, **{"restic": {"stolen": step["wall"]}, "tar": {"stolen": 0.2}}.get(round_["tool"], {"stolen": step["wall"] / 2})}
                        step["wall"] *= {"restic": 20, "tar": 40}.get(round_["tool"], 1)
        self.assertEqual([(round(part, 3), tool) for part, tool in hampered(result)], [(0.05, "restic")])
        self.assertIn("It took most in the rows of restic (0.05): theirs are the times of a somewhat slower machine.", page.page(result))
        self.assertNotIn("It took most", page.page(fixed()))

    def test_a_run_that_was_stopped_says_so(self):
        self.assertIn("**This run was stopped before it was done**", page.page({**fixed(), "complete": False}))
        self.assertNotIn("was stopped", page.page(fixed()))

    def test_a_page_of_several_runs_says_so(self):
        self.assertNotIn("Put together", page.page(fixed()))
        self.assertIn("Put together from 3 runs of some of the tools each.", page.page({**fixed(), "joined": 3, "at_once": False}))
        self.assertIn("which went on at the same time", page.page({**fixed(), "joined": 3, "at_once": True}))

    def test_builds_of_one_version_are_told_apart(self):
        self.assertEqual(version({"version": "it 0.1", "program": "0123456789abcdef"}), "it 0.1 (01234567)")
        self.assertEqual(version({"version": None}), "not told")

    def test_one_step_is_no_line(self):
        result = six()
        self.assertIsNotNone(lines.lines(result, "restores", SECONDS, "all", True))
        alone = {**result, "restores": result["restores"][-1:]}
        self.assertIsNone(lines.lines(alone, "restores", SECONDS, "one", True))

    def test_no_line_goes_over_a_step_that_failed(self):
        self.assertEqual(lines.unbroken([1, 2, None, 3, None]), [[1, 2], [3]])
        self.assertEqual(lines.unbroken([None, None]), [])


class Meaning(unittest.TestCase):
    def test_medians_over_the_rounds_and_what_failed_has_none(self):
        figures = column(fixed(), "steps", "first", SECONDS)
        self.assertAlmostEqual(figures["drumlin"].value, 1.05)
        self.assertAlmostEqual(figures["drumlin"].most, 1.1)
        self.assertEqual((figures["failing"].value, figures["failing"].status), (None, "failed"))
        self.assertEqual(figures["endless"].status, "killed after 60 s")

    def test_a_tool_that_fails_once_keeps_its_other_rounds(self):
        result = fixed()
        left = {"no change": {"status": "not run"}}
        result["rounds"].append({"tool": "tar", "round": 4, "restores": left, "steps": {"first": record(0, status="failed", output="no\n"), **left}})
        figure = column(result, "steps", "first", SECONDS)["tar"]
        self.assertEqual((round(figure.value, 3), figure.rounds), (0.525, 3))
        self.assertIn("- tar, backup “first”: failed: `no`", page.page(result))
        result["rounds"][-1]["steps"]["first"]["status"] = "wrong"
        self.assertIsNone(column(result, "steps", "first", SECONDS)["tar"].value)

    def test_more_than_ten_times_the_best_is_marked(self):
        figures = column(fixed(), "steps", "no change", SECONDS)
        self.assertTrue(is_over_ten_times(figures, figures["restic"]))
        self.assertFalse(is_over_ten_times(figures, figures["tar"]))

    def test_what_is_close_counts_for_neither_where_a_round_says_little(self):
        def levels(result, ours, theirs, measure):
            """Whether Drumlin's figures are level with tar's, of so many rounds each."""
            figure = lambda values: Figure("", median(values), min(values), max(values), "ok", measure, len(values))
            return are_level(result, figure(ours), figure(theirs))
        quiet, busy = {"rounds": [], "load": 0.5}, {"rounds": [], "load": 3.0}
        for measure, result, ours, theirs, level in (
                (SECONDS, quiet, [1.09], [1.0], True), (SECONDS, quiet, [1.12], [1.0], False), (SECONDS, quiet, [1.0], [1.12], False), (SECONDS, busy, [1.2], [1.0], True),
                (SECONDS, busy, [1.3], [1.0], False), (SECONDS, quiet, [1.05, 1.05], [1.0, 1.0], False), (SECONDS, quiet, [1.015, 1.015], [1.0, 1.0], True),
                (SECONDS, quiet, [1.3, 1.5], [1.2, 1.4], True), (SECONDS, quiet, [1.0, 1.2, 1.5], [1.4], True), (REPOSITORY, busy, [1.03], [1.0], False)):
            self.assertEqual(levels(result, ours, theirs, measure), level, (measure.title, result, ours, theirs))

    def test_all_commits_that_measured_are_named(self):
        result = {**fixed(), "commit": "aaaa"}
        self.assertEqual(measured_by(result), ", commit aaaa")
        result["rounds"][-1]["commit"] = "bbbb+"
        self.assertEqual(measured_by(result), ", commits aaaa, bbbb+")
        self.assertEqual(measured_by({"commit": None}), "")

    def test_drumlin_is_no_peer_of_its_own(self):
        text = page.page(fixed())
        self.assertIn("| *best peer* | 0.53 tar |", text)
        self.assertIn("| *Drumlin : that* | 2.00 |", text)

    def test_a_larger_run_beside_few_does_not_stand_for_its_workload(self):
        many, few, cold = fixed(), {**fixed(), "scale": 1.0}, {**fixed(), "cache": "cold", "scale": 0.1}
        few["rounds"] = [record for record in few["rounds"] if record["tool"] in ("drumlin", "tar")]
        self.assertEqual(largest([many, few, cold]), ([many, cold], [few]))
        few["rounds"] += [record for record in many["rounds"] if record["tool"] == "restic"]
        self.assertEqual(largest([many, few, cold]), ([few, cold], [many]))


class Trails(unittest.TestCase):
    def test_who_is_ahead_by_how_much_and_why(self):
        # The first one explains no more than a hundredth.
        lucky = trails.Reason("seconds", ("tar*",), "it is lucky", ("W0",), up_to=1.01)
        copies = trails.Reason("seconds", ("tar*",), "it copies", ("W0",), ("first",))
        streams = trails.Reason("seconds", ("tar*",), "it streams", ("W0-far",))
        known = [lucky, copies, streams, trails.Reason("seconds", ("tar*",), "it is small")]
        found, unknown, used = trails.explained([fixed(), distant()], known, {"seconds": SECONDS})
        self.assertEqual(trails.rows(found), [
            ("seconds", "tar: 2.00", "W0 at 0.5", "it copies"),
            ("seconds", "tar-zstd: 1.38", "W0 at 0.5", "it is small"),
            ("seconds", "tar: 2.00; tar-zstd: 1.38", "over lines W0", "it streams"),
        ])
        self.assertEqual((unknown, used), ([], {*known} - {lucky}))
        self.assertEqual(trails.explained([fixed()], [], {"seconds": SECONDS})[1][0], "W0 (servers far, 40 ms, 3 MB/s): seconds, tar, first, 2.00")

    def test_whose_rounds_overlap_is_not_ahead(self):
        result = fixed()
        found = trails.ahead(result, SECONDS)
        self.assertEqual({tool: [step for step, _ in steps] for tool, steps in found.items()}, {"tar": ["first"], "tar-zstd": ["restore"]})
        for record_ in result["rounds"]:
            if record_["tool"] == "tar-zstd":
                record_["restores"]["no change"]["wall"] += 0.35 * (record_["round"] == 2)
        self.assertEqual(list(trails.ahead(result, SECONDS)), ["tar"])
        self.assertIn("1.16: ≈ ", page.contents([result]))

    def test_many_steps_are_told_as_a_range(self):
        self.assertEqual(trails.said([1.5, 3, 2, 1.1]), "4 columns, 1.10 to 3.00")
        self.assertEqual(trails.said([1.031, 1.032]), "2 columns, 1.03")


class Named(unittest.TestCase):
    def test_the_largest_run_beside_most_of_them_is_shown(self):
        many, large, cold = fixed(), {**fixed(), "scale": 1.0}, {**fixed(), "scale": 2.0, "cache": "cold"}
        many["tools"] = {**many["tools"], "borg": many["tools"]["restic"]}
        self.assertEqual(named.chosen([large, cold, distant(), many]), [many])
        larger = {**many, "scale": 0.9}
        self.assertEqual(named.chosen([many, larger, large]), [larger])

    def test_figures_are_told_with_how_many_times_drumlins_they_are(self):
        text = named.page([fixed()])
        self.assertIn("| W0 at 0.5 | 1.05 | 6.30 (6.00 ×) |", text)
        self.assertIn("| W0 at 0.5 | 50.0 | 50.0 (≈ 1.00 ×) |", text)
        self.assertIn(">0.17</text>", dict(named.charts([fixed()]))["glance-named"])

    def test_versions_that_differ_are_told_with_where_they_ran(self):
        older = {**fixed(), "workload": "W9", "tools": {**fixed()["tools"], "restic": {**fixed()["tools"]["restic"], "version": "restic 0.9"}}}
        self.assertEqual((named.versions([fixed()]), named.versions([fixed(), older])), ("restic: 0.14.0", "restic: 0.14.0 (W0) and 0.9 (W9)"))

    def test_who_was_killed_is_told_and_where_nobody_ran_is_no_page(self):
        result = fixed()
        result["rounds"] = [record_ for record_ in result["rounds"] if record_["tool"] != "restic"]
        killed = next(record_ for record_ in result["rounds"] if record_["tool"] == "endless")
        result["rounds"].append({**killed, "tool": "restic"})
        self.assertIn("| W0 at 0.5 | 1.05 | killed after 60 s |", named.page([result]))
        self.assertIn(">killed</text>", dict(named.charts([result]))["glance-named"])
        del result["tools"]["restic"]
        self.assertEqual((named.page([result]), named.charts([result])), (None, []))
        self.assertNotIn("named.md", page.contents([result]))


class Apart(unittest.TestCase):
    def test_a_table_of_its_own_is_kept_and_made_into_a_page(self):
        rounds = [{"wall": 1.0, "memory": 20e6}, {"wall": 3.0, "memory": 30e6}, {"wall": 2.0, "memory": 20e6}]
        made = own.table("apart", "Apart", ["In turns.", "Hot."], [], [("time", "s"), ("memory", "MB")], [("one", own.of(rounds, "wall", "memory")), ("other", [[], None])])
        with tempfile.TemporaryDirectory() as folder:
            own.write({**made, "date": "2026-01-02T03:04:05Z"}, folder)
            path = own.write({**made, "date": "2026-01-02T03:04:06Z"}, folder)
            self.assertEqual(path.name, "apart-20260102T030406Z.json")
            newest, = own.newest(folder)
        text = own.page(newest)
        self.assertIn("| | time, s | memory, MB |\n|---|---:|---:|\n| one | 2.00 <sub>1.00–3.00</sub> | 20.0 <sub>20.0–30.0</sub> |\n| other | – | – |\n", text)
        self.assertIn("\n\nIn turns. Hot.\n\n", text)
        self.assertIn("- [Apart](apart.md)\n", page.contents([fixed()], [("apart", "Apart")]))
        self.assertEqual(own.newest("/nowhere"), [])
        self.assertEqual([own.by("far-1404"), own.by("no-change")], ["far", "no-change"])


class TheDocuments(unittest.TestCase):
    def test_all_workloads_are_to_be_run(self):
        there = [name for name, workload in workloads.everything().items() if name != "tree"]
        self.assertEqual(sorted(page.WORKLOADS), there)

    def test_whatever_trails_has_a_reason(self):
        known = trails.reasons()
        _, unknown, used = trails.explained(results.newest(), known, trails.MEASURES | trails.LESSER)
        self.assertEqual(unknown, [], "say why in bench/harness/report/reasons.toml")
        self.assertEqual([reason for reason in known if reason not in used], [], "explains nothing any more")

    def test_each_drawing_is_there_for_those_who_can_not_show_svg(self):
        for drawing in DOCS.glob("charts/*.svg"):
            root = ElementTree.fromstring(drawing.read_text())
            head = drawing.with_suffix(".png").read_bytes()[:24]
            self.assertEqual(head[:8] + head[12:16], b"\x89PNG\r\n\x1a\nIHDR", drawing)
            size = [int.from_bytes(head[at:at + 4], "big") for at in (16, 20)]
            for pixels, side in zip(size, ("width", "height")):
                self.assertAlmostEqual(pixels, float(png.ZOOM) * int(root.get(side)), delta=1, msg=f"{drawing}: run bench/report")

    def test_docs_are_what_the_results_make(self):
        made = program().made(results.newest(), results.sweep(), own.newest())
        there = {str(path.relative_to(DOCS)) for path in [*DOCS.glob("*.md"), *DOCS.glob("charts/*.svg")]} - {"README.md"}
        self.assertEqual(there, set(made), "run bench/report")
        for name, text in made.items():
            with self.subTest(name):
                self.assertEqual((DOCS / name).read_text(), text, "run bench/report")
