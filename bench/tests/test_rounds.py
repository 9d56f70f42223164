"""The rounds, with tools that do what they should, or fail, dawdle, lie: each is told as what it is."""

import io
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest
from contextlib import redirect_stderr
from itertools import permutations
from pathlib import Path
from unittest import mock

from harness import measure, results
from harness.options import Options
from harness.rounds import Rounds, Unfit
from harness.tools import Tool, choose, everything
from harness.workloads.base import Step, Workload
from harness.workloads.six import Six


HERE = Path(__file__).resolve().parent.parent


class Small(Workload):
    name, title, source = "small", "Three files", "made here"

    def steps(self):
        return [Step("first"), Step("no change"), Step("one more", lambda tree, rng: (tree / "d").write_text("d"))]

    def restored(self):
        return [1, 3]

    def make(self, tree):
        for name in "abc":
            (tree / name).write_text(name * 100)


class Trees(Six):
    name, title, source = "trees", "Eight trees", "made here"

    def make(self, tree):
        for number in range(8):
            (tree / f"t{number}").mkdir()
            (tree / f"t{number}" / "file").write_text(f"{number}" * 100)


class Good(Tool):
    name, program = "good", "cp"

    def backup(self, step):
        return f"cp -a {self.source} {self.repo}/{step}"

    def restore(self, step):
        return f"cp -a {self.repo}/{step} {self.out}/tree"

    def landing(self, step):
        return self.place.out / "tree"


class Failing(Good):
    name = "failing"

    def backup(self, step):
        return super().backup(step) if step < 2 else "echo the disk is round; exit 9"


class Slow(Good):
    name = "slow"

    def backup(self, step):
        return super().backup(step) if step < 2 else "sleep 30"


class Lying(Good):
    name = "lying"

    def restore(self, step):
        return f"{super().restore(step)} && echo changed > {self.out}/tree/b"


class Losing(Good):
    name = "losing"

    def restore(self, step):
        return "true"


class Broken(Good):
    name = "broken"

    def start(self):
        raise OSError("its server does not come up")


class Unlucky(Good):
    name = "unlucky"

    def start(self):
        subprocess.run("echo no settings today >&2; exit 4", shell=True, check=True, capture_output=True)

    def close(self):
        raise OSError("it doesn't end either")


class Behind(Good):
    name = "behind"

    def backup(self, step):
        return f"sleep 0.5 && {super().backup(step)}"

    def restore(self, step):
        return f"sleep 0.5 && {super().restore(step)}"


class Sealing(Behind):
    name, encrypts = "sealing", True


class Pulling(Good):
    name, pulls = "pulling", ("steps",)

    def start(self):
        self.daemon = subprocess.Popen([sys.executable, "-c", "x = b'1' * 80_000_000\nwhile True: pass"])

    def close(self):
        self.daemon.kill()
        self.daemon.wait()

    def clients(self):
        return [self.daemon.pid]

    def backup(self, step):
        return f"sleep 0.5 && {super().backup(step)}"


class Agent(Good):
    name = "agent"

    def backup(self, step):
        return super().backup(step) + " && (setsid sleep 100 > /dev/null 2>&1 &)"


def of(tool, result):
    """The first round of a tool, whenever its turn came."""
    return next(record for record in result["rounds"] if record["tool"] == tool)


def clocked():
    """Who sleeps takes half a second by the clock, and whoever else ten milliseconds, however busy the machine is."""
    real = measure.run

    def run(command, *args, **more):
        return {**real(command.replace("sleep 0.5 && ", ""), *args, **more), "wall": 0.5 if "sleep 0.5" in command else 0.01}
    return mock.patch("harness.measure.run", run)


class TheRounds(unittest.TestCase):
    def setUp(self):
        # Nobody is compared here: the disk's and the memory's state may be what it is.
        for name in ("touch", "os.sync"):
            patch = mock.patch(f"harness.measure.{name}")
            patch.start()
            self.addCleanup(patch.stop)

    def run_(self, *tools, seed=1, **options):
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            settings = {"repeat": 2, "loop": False, "floor": 60.0, "settle": 0.0, "count_syncs": False, **options}
            seen = []
            result = Rounds(Small(seed=seed), tools, Options(folder, **settings), lambda result: seen.append(len(result["rounds"]))).run()
            self.assertEqual(seen, list(range(1, len(result["rounds"]) + 1)))
            self.assertEqual(sorted(path.name for path in Path(folder).iterdir()), ["data"])
            return result

    def test_a_tool_that_does_what_it_should(self):
        result = self.run_(Good)
        self.assertEqual(len(result["rounds"]), 2)
        for round_ in result["rounds"]:
            self.assertEqual([step["status"] for part in ("steps", "restores") for step in round_[part].values()], ["ok"] * 5)
        first, third = (result["rounds"][1]["steps"][step]["repository"] for step in ("first", "one more"))
        self.assertEqual((first["bytes"], first["files"], third["bytes"], third["files"]), (300, 3, 901, 10))
        self.assertEqual(result["rounds"][0]["restores"]["one more"]["check"], {"entries": 4, "wrong": 0, "first": None, "metadata": 0})
        self.assertEqual(results.status(result, "steps", "first", "good")[0], "ok")

    def test_commands_are_told_without_the_folders_of_the_machine(self):
        class Exact(Good):
            def backup(self, step):
                return f"{self.binary()} -a {self.source} {self.repo}/{step}"
        [step, restored] = [self.run_(Exact, repeat=1)["rounds"][0][part]["one more"]["command"] for part in ("steps", "restores")]
        self.assertEqual((step, restored), ("cp -a source/tree repository/3", "cp -a repository/3 out/tree"))

    def test_of_six_states_the_last_alone_may_be_restored(self):
        workload = Trees()
        workload.last_alone = True
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            result = Rounds(workload, [Good], Options(folder, 1, loop=False, settle=0.0, count_syncs=False)).run()
        restored = result["rounds"][0]["restores"]
        self.assertEqual((result["restores"], [*restored]), (["halved"], ["halved"]))
        self.assertEqual((restored["halved"]["status"], restored["halved"]["check"]["wrong"]), ("ok", 0))

    def test_turns_are_thrown_anew_for_each_run(self):
        class Other(Good):
            name = "other"

        class Third(Good):
            name = "third"

        def orders(workload, date):
            rounds = Rounds(workload, [Good, Other, Third], Options("unused"))
            rounds.result = {"date": date}
            return [rounds.order(number) for number in range(1, 20)]
        first = orders(Small(), "2026-11-29T05:00:00Z")
        self.assertEqual({tuple(order) for order in first}, set(permutations([Good, Other, Third])))
        self.assertEqual(orders(Small(), "2026-11-29T05:00:00Z"), first)
        others = [orders(Small(), "2026-11-29T05:00:01Z"), orders(Small(seed=2), "2026-11-29T05:00:00Z"), orders(Trees(), "2026-11-29T05:00:00Z")]
        self.assertEqual(len({str(order) for order in [first, *others]}), 4)

    def test_a_run_is_taken_up_where_it_stopped(self):
        class Other(Good):
            name = "other"

        class Stop(Exception):
            pass

        def stop(result):
            kept[:] = [json.loads(json.dumps(result))]
            if len(result["rounds"]) == 3:
                raise Stop
        kept = []
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            options = Options(folder, 2, loop=False, settle=0.0, count_syncs=False)
            with self.assertRaises(Stop):
                Rounds(Small(), [Good, Failing, Other], options, stop).run()
            begun = kept[0]
            self.assertFalse(begun["complete"])
            # Who has done nothing yet may stay away.
            begun["tools"]["late"] = {"version": "1"}
            result = Rounds(Small(), [Good, Failing, Other], options, begun=begun).run()
            self.assertEqual((result["complete"], result["date"], result["rounds"][:3]), (True, begun["date"], begun["rounds"]))
            # Whoever failed once is not asked again.
            done = sorted((record["tool"], record["round"]) for record in result["rounds"])
            self.assertEqual(done, [("failing", 1), ("good", 1), ("good", 2), ("other", 1), ("other", 2)])
            begun["tools"]["other"]["version"] = "an older one"
            with self.assertRaisesRegex(Unfit, "others now: other$"):
                Rounds(Small(), [Good, Failing, Other], options, begun=begun).run()
            with self.assertRaisesRegex(Unfit, "others now: floor, near, other$"):
                Rounds(Small(), [Good, Failing, Other], Options(folder, 2, loop=False, settle=0.0, count_syncs=False, floor=61.0, near=3), begun=begun).run()
            begun["data"]["bytes"] += 1
            with self.assertRaisesRegex(Unfit, "others now: data, good, other$"):
                Rounds(Small(), [Failing, Other], options, begun=begun).run()

    def test_who_is_far_behind_has_one_round(self):
        for near, rounds in ((0, 2), (3, 1), (1000, 2)):
            with clocked():
                result = self.run_(Good, Behind, near=near)
            done = [[record["round"] for record in result["rounds"] if record["tool"] == tool.name] for tool in (Good, Behind)]
            self.assertEqual((done, result["near"]), ([[1, 2], list(range(1, rounds + 1))], near))

    def test_who_does_more_is_held_against_his_like(self):
        with clocked():
            result = self.run_(Good, Sealing, near=3)
        self.assertEqual(len(result["rounds"]), 4, "nobody else encrypts")

    def test_who_is_near_in_one_step_is_not_far_behind(self):
        with clocked():
            result = self.run_(Good, Pulling, near=3)
        self.assertEqual(len(result["rounds"]), 4, "its restores are as fast")

    def test_drumlin_sets_no_limit(self):
        rounds = Rounds(Small(), [Good], Options("unused"))
        for tool, wall in (("drumlin", 0.1), ("drumlin-passphrase", 0.2), ("good", 3.0), ("other", 2.0), ("good", 4.0)):
            rounds.noted(tool, "steps", "first", wall)
        self.assertEqual(rounds.best, {("steps", "first"): 2.0})

    def test_a_failure_is_a_row_and_the_others_go_on(self):
        result = self.run_(Failing, Good)
        failed = of("failing", result)
        self.assertEqual([failed["steps"][step]["status"] for step in result["steps"]], ["ok", "failed", "not run"])
        self.assertEqual(failed["steps"]["no change"]["exit"], 9)
        self.assertIn("the disk is round", failed["steps"]["no change"]["output"])
        self.assertEqual([failed["restores"][step]["status"] for step in result["restores"]], ["ok", "not run"])
        self.assertEqual(sorted(round_["tool"] for round_ in result["rounds"]), ["failing", "good", "good"])

    def test_over_ten_times_the_best_is_killed_and_told(self):
        # Whoever comes before all others has all the time there is.
        with mock.patch.object(Rounds, "order", lambda rounds, _: rounds.tools):
            slow = of("slow", self.run_(Good, Slow, repeat=1, floor=1.5))
        self.assertEqual(slow["steps"]["first"]["status"], "ok")
        self.assertEqual(slow["steps"]["no change"]["status"], "over ten times")
        step = slow["steps"]["no change"]
        self.assertEqual(step["limit"], max(1.5, 10 * step["best"]))
        # It was stopped in the middle: what it then gives back is not asked.
        self.assertEqual([step["status"] for step in slow["restores"].values()], ["not run"] * 2)

    def test_a_wrong_restore_is_found(self):
        result = self.run_(Lying, Losing, repeat=1)
        self.assertEqual(of("lying", result)["restores"]["first"]["status"], "wrong")
        self.assertIn("such as b", of("lying", result)["restores"]["first"]["output"])
        self.assertEqual(of("losing", result)["restores"]["first"]["status"], "wrong")

    def test_a_wrong_restore_sets_no_limit(self):
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            rounds = Rounds(Small(), [Lying], Options(folder, 1, loop=False, settle=0.0, count_syncs=False))
            rounds.run()
        self.assertIn(("steps", "first"), rounds.best)
        self.assertNotIn(("restores", "first"), rounds.best)

    def test_caches_that_can_not_be_dropped_end_a_cold_run(self):
        with mock.patch("harness.rounds.drop_caches", side_effect=PermissionError("not here")), self.assertRaisesRegex(Unfit, "can't be dropped: not here"):
            self.run_(Good, cold=True)


    def test_a_server_that_does_not_come_up_is_a_failure(self):
        broken = self.run_(Broken, repeat=1)["rounds"][0]
        self.assertEqual([broken["steps"][step]["status"] for step in ("first", "no change")], ["failed", "not run"])
        self.assertEqual(broken["restores"]["first"]["status"], "not run")

    def test_settings_that_can_not_be_made_are_a_failure_too(self):
        result = self.run_(Unlucky, Good, repeat=1)
        self.assertEqual([of(tool, result)["steps"]["first"]["status"] for tool in ("unlucky", "good")], ["failed", "ok"])
        self.assertIn("no settings today", of("unlucky", result)["steps"]["first"]["output"])

    def test_nothing_of_a_tool_goes_on(self):
        self.run_(Agent, repeat=1)
        self.assertEqual([pid for pid in measure.below([os.getpid()]) - {os.getpid()} if measure.alive(pid)], [])

    def test_of_a_tool_that_pulls_the_daemon_is_the_client(self):
        told = self.run_(Pulling, repeat=1)["rounds"][0]
        step = told["steps"]["no change"]
        self.assertGreater(step["memory"], 80e6)
        self.assertLess(step["server_memory"], 40e6)
        self.assertGreater(step["cpu"], step["server_cpu"])
        self.assertIsNone(told["restores"]["first"]["server_memory"])

    def test_a_workload_that_fails_is_nobodys_failure(self):
        class Unlucky(Small):
            def steps(self):
                return [Step("first"), Step("no change"), Step("one more", lambda tree, rng: (tree / "none" / "d").write_text("d"))]
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            rounds = Rounds(Unlucky(), [Good], Options(folder, 1, loop=False, settle=0.0, count_syncs=False))
            self.assertRaises(Unfit, rounds.run)
            self.assertEqual(sorted(path.name for path in Path(folder).iterdir()), ["data"])


class TheProgram(unittest.TestCase):
    def test_it_lists_what_there_is(self):
        said = subprocess.run([sys.executable, "run", "--list"], cwd=HERE, capture_output=True, text=True, check=True).stdout
        for name in ("W1", "W5-slow", "W8-se", "drumlin", "tar", "kopia-zstd"):
            self.assertIn(f"\n  {name} ", said)

    def test_the_setup_is_a_script(self):
        subprocess.run(["bash", "-n", "setup"], cwd=HERE, check=True)

    def test_a_run_that_is_stopped_leaves_its_data_only(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ["run", "W4", "--scale", "0.0001", "--tools", "cp", "--settle", "60", "--no-syncs", "--folder", "--work", f"{folder}/work",
                       "--results", f"{folder}/results"]
            process = subprocess.Popen([sys.executable, *command], cwd=HERE, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            for line in process.stderr:
                if "round 1 of 3: cp" in line:
                    time.sleep(0.3)
                    process.terminate()
                    break
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 143)
            self.assertEqual([path.name for path in Path(folder, "work").iterdir()], ["data"])


class TheTools(unittest.TestCase):
    def test_rows_say_what_they_are(self):
        rows = everything()
        self.assertGreaterEqual(len(rows), 30)
        for name, row in rows.items():
            self.assertTrue(row.of is None or row.of in rows, name)
            self.assertTrue(row.trees or row.streams, name)
            if row.of and row.default:
                self.assertGreaterEqual((row.compresses, row.encrypts), (rows[row.of].compresses, rows[row.of].encrypts), name)

    def test_who_is_not_here_is_named(self):
        self.assertEqual([row.name for row in choose(["tar"])[0]], ["tar"])
        self.assertEqual([row.name for row in choose(["tar", "cp"], without=["tar"])[0]], ["cp"])
        self.assertNotIn("tar", [row.name for row in choose(without=["tar"])[0]])
        self.assertRaises(KeyError, choose, ["no-such-tool"])
        self.assertRaises(KeyError, choose, None, False, ["no-such-tool"])
        self.assertEqual(choose(["tar"], stream=True), ([], [("tar", "it can't save a stream")]))
