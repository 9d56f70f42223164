"""The workloads: the same from the same seed, of the sizes that they promise, and changed as their steps say."""

import json
import random
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness import manifest, workloads
from harness.workloads import base, six
from harness.workloads.w1 import W1
from harness.workloads.w2 import W2
from harness.workloads.w4 import W4
from harness.workloads.w5 import W5, W5Slow
from harness.workloads.w6 import W6
from harness.workloads.w7 import W7
from harness.workloads.w8 import W8
from harness.workloads.text import text

RESULTS = Path(__file__).parents[1] / "results"
MADE = ((W1, 0.001), (W2, 0.002), (W4, 0.0002), (W5, 0.0002), (W5Slow, 0.01))


class Pinned(unittest.TestCase):
    def test_a_scale_means_the_releases_that_it_meant_when_it_was_published(self):
        published = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("W6-*.json"))]
        self.assertTrue(published)
        for result in published:
            with self.subTest(f"{result['scale']:g}, {result['date']}"):
                now = W6(result["scale"], result["seed"])
                self.assertEqual(now.releases(), result["data"]["versions"])
                self.assertAlmostEqual(now.part(), result["data"]["part"])

    def test_all_releases_are_there_at_scale_1_and_each_once(self):
        releases = W6(1.0).releases()
        self.assertEqual((len(releases), len(set(releases)), W6(1.0).part()), (32, 32, 1.0))


class Installing(unittest.TestCase):
    def settle(self, failures):
        """Whether a step that fails so often comes to an end, and how often it was taken."""
        calls = []

        def step():
            calls.append(1)
            if len(calls) <= failures:
                raise OSError("needs another package's configuration")

        try:
            W7.settled(step)
        except OSError:
            return False, len(calls)
        return True, len(calls)

    def test_packages_that_need_others_first_are_installed_by_another_turn(self):
        self.assertEqual(self.settle(0), (True, 1))
        self.assertEqual(self.settle(2), (True, 3))

    def test_packages_that_never_install_are_told(self):
        self.assertEqual(self.settle(100), (False, 4))


class Dumps(unittest.TestCase):
    def test_each_table_of_a_database_is_asked_by_itself(self):
        asked = W8(0.01).sums().splitlines()
        self.assertEqual([line.split(" from ")[1] for line in asked], [f"{table};" for table, _ in W8(0.01).tables()])
        self.assertEqual(len(asked), 150)


class Making(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.top = Path(folder.name)

    def made(self, workload, name):
        tree, told = workload.data(self.top / name)
        return [line[:2] for line in manifest.lines(tree)], told, tree

    def test_a_seed_makes_the_same_and_another_seed_does_not(self):
        for kind, scale in MADE:
            with self.subTest(kind.name):
                first, second = (self.made(kind(scale, 7), name)[0] for name in ("a", "b"))
                self.assertEqual(first, second)
                self.assertNotEqual(first, self.made(kind(scale, 8), "a")[0])

    def test_what_is_made_is_made_once(self):
        _, told, tree = self.made(W1(0.001), "a")
        (tree / "mine").touch()
        self.assertEqual(W1(0.001).data(self.top / "a")[1], told)
        self.assertTrue((tree / "mine").exists())
        # Not what other code made.
        with mock.patch.object(base, "digest_of", lambda paths: str(len(paths) > 10)):
            self.assertEqual(W1(0.001).data(self.top / "a")[1], told | {"made_by": "True"})
        self.assertFalse((tree / "mine").exists())

    def test_mails_are_as_large_as_mails(self):
        _, told, _ = self.made(W1(0.004), "a")
        self.assertEqual(told["files"], 620)
        self.assertTrue(15_000 < told["bytes"] / told["files"] < 38_000, told)

    def test_an_eighth_of_the_files_are_duplicates(self):
        lines, told, _ = self.made(W2(0.005), "a")
        contents = [what for _, what in lines if what.startswith(b"f ")]
        self.assertEqual(len(contents), 192)
        self.assertAlmostEqual((len(contents) - len(set(contents))) / len(contents), 0.13, delta=0.01)

    def test_nearly_all_tiny_files_are_tiny(self):
        lines, told, _ = self.made(W5(0.0005), "a")
        sizes = [int(what.split()[1]) for _, what in lines if what.startswith(b"f ")]
        self.assertEqual(len(sizes), 1500)
        self.assertAlmostEqual(sum(size <= 1000 for size in sizes) / len(sizes), 0.95, delta=0.02)

    def test_logs_are_similar_and_not_the_same(self):
        _, _, tree = self.made(W4(0.0005), "a")
        whole = b"".join(path.read_bytes() for path in sorted(tree.iterdir()))
        lines = whole.splitlines()
        self.assertGreater(len(set(lines)) / len(lines), 0.99)
        packed = subprocess.run(["zstd", "-q", "-c"], input=whole, capture_output=True, check=True).stdout if self.zstd() else None
        if packed:
            self.assertTrue(4 < len(whole) / len(packed) < 14, len(whole) / len(packed))

    def test_a_log_that_grows_says_so(self):
        workload = W4(0.0002)
        _, _, tree = self.made(workload, "a")
        before = {path: path.stat() for path in tree.iterdir()}
        workload.steps()[2].change(tree, workload.random("change", 3))
        grown = [path for path in tree.iterdir() if path.stat().st_size > before[path].st_size]
        self.assertEqual([path for path in tree.iterdir() if path.stat().st_mtime > before[path].st_mtime], grown)
        self.assertEqual(len(grown), 1)

    def zstd(self):
        return subprocess.run("command -v zstd", shell=True, capture_output=True).returncode == 0

    def test_text_reads_as_text(self):
        made = text(random.Random(1), 10_000)
        self.assertEqual(len(made), 10_000)
        self.assertTrue(made.isascii())
        self.assertTrue(1400 < len(made.split()) < 3000, len(made.split()))

    def test_a_day_brings_mail_and_takes_some(self):
        workload = W1(0.001)
        _, _, tree = self.made(workload, "a")
        before = {path.name for path in tree.rglob("*") if path.is_file()}
        workload.steps()[2].change(tree, workload.random("change", 3))
        after = {path.name for path in tree.rglob("*") if path.is_file()}
        self.assertEqual((len(after - before), len(before - after)), (6, 6))  # three new, three renamed; three renamed, three gone


class TheSix(unittest.TestCase):
    """Each of the six steps on eight small trees."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name)
        for number in range(8):
            (self.tree / f"t{number}").mkdir()
            for file in range(5):
                (self.tree / f"t{number}" / f"f{file}").write_text(f"contents {number} {file}\n" * 100)

    def state(self):
        return {path: (what, meta) for path, what, meta in manifest.lines(self.tree)}

    def step(self, change):
        before = self.state()
        change(self.tree, random.Random(1))
        return before, self.state()

    def test_scrambling_changes_the_contents_of_one_tree(self):
        before, after = self.step(six.scramble)
        self.assertEqual(before.keys(), after.keys())
        changed = [path for path in before if before[path][0] != after[path][0]]
        self.assertEqual(sorted(changed), [b"t0/f%d" % file for file in range(5)])

    def test_new_times_change_nothing_else(self):
        before, after = self.step(six.new_times)
        self.assertEqual({path: what for path, (what, _) in before.items()}, {path: what for path, (what, _) in after.items()})
        changed = [path for path in before if before[path] != after[path]]
        self.assertEqual(sorted(changed), [b"t1/f%d" % file for file in range(5)])

    def test_half_are_moved_then_half_deleted(self):
        before, after = self.step(six.rename)
        self.assertEqual(len([path for path in after if path.startswith(b"moved/t") and path.count(b"/") == 1]), 4)
        self.assertEqual(len(after), len(before) + 1)
        six.halve(self.tree, None)
        left = [path for path in self.state() if path.endswith(b"f0")]
        self.assertEqual(len(left), 4)


class All(unittest.TestCase):
    def test_all_are_there_with_steps_and_restores(self):
        known = workloads.everything()
        self.assertLessEqual({f"W{number}" for number in range(1, 9)}, known.keys())
        for name, kind in known.items():
            workload = kind(0.01, 1)
            steps = workload.steps()
            self.assertEqual([step.name for step in steps[:2]], ["first", "no change"], name)
            self.assertTrue(all(1 <= number <= len(steps) for number in workload.restored()), name)
            if workload.six:
                self.assertEqual((len(steps), workload.restored()), (6, [1, 2, 3, 4, 5, 6]), name)
                workload.last_alone = True
                self.assertEqual(workload.restored(), [6], name)
