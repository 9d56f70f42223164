"""Repositories at the end of a line: tools that reach theirs over ssh are taken through a few steps, if sshd is here; what is
restored is right, both ends are measured apart, the line is counted and as long as was asked, and nothing is left."""

import io
import os
import tempfile
import time
import unittest
from contextlib import redirect_stderr
from pathlib import Path

from harness import far, measure
from harness.options import Options
from harness.rounds import Rounds
from harness.tools import Place, Tool, choose, everything

from .test_servers import CONTENTS_BYTES, Changing

RTT_MS = 20.0


def name(pid):
    """What a process runs; None once it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None


class Asking(Tool):
    """Comes to a question that nobody is there to answer."""

    name, program, far = "asking", "ssh", True

    def backup(self, step):
        return "ssh -o BatchMode=no -o StrictHostKeyChecking=ask -o UserKnownHostsFile=/dev/null far true"


class Far(unittest.TestCase):
    def setUp(self):
        if lacking := far.missing():
            (self.fail if os.environ.get("DRUMLIN_SERVERS") else self.skipTest)(f"needs {', '.join(lacking)}")
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def round(self, row):
        with redirect_stderr(io.StringIO()):
            options = Options(self.folder.name, repeat=1, loop=False, settle=0.1, check="all", count_syncs=False, ceiling=120.0,
                              rtt_ms=RTT_MS, far=True)
            result = Rounds(Changing(), [row], options).run()
        self.assertEqual(result["wire"], {"far": True, "rtt_ms": RTT_MS, "rate": 0})
        self.assertEqual([pid for pid in measure.below([os.getpid()]) - {os.getpid()} if measure.alive(pid)], [])
        return result["rounds"][0]

    def taken_through(self, name):
        row = everything()[name]
        if lacking := row.missing():
            self.skipTest(f"needs {', '.join(lacking)}")
        told = self.round(row)
        for part in ("steps", "restores"):
            for step, figures in told[part].items():
                self.assertEqual(figures["status"], "ok", f"{part}, {step}: {figures.get('output')}")
                wire = figures["wire"]
                self.assertGreaterEqual(wire["connections"], 1)
                self.assertGreaterEqual(wire["turns"], 5)  # a login alone
                self.assertGreaterEqual(figures["wall"], 5 * RTT_MS / 1000)
                self.assertGreater(min(figures["memory"], figures["server_memory"]), 1e6)
        first, restore = told["steps"]["first"], told["restores"]["first"]
        self.assertGreater(first["wire"]["up"], 3 * CONTENTS_BYTES)
        self.assertGreater(restore["wire"]["down"], 3 * CONTENTS_BYTES)
        self.assertGreater(first["repository"]["bytes"], 3 * CONTENTS_BYTES)
        self.assertGreater(sum(step["server_cpu"] for step in told["steps"].values()), 0)
        return told

    def test_tar_over_ssh(self):
        self.assertGreater(self.taken_through("tar")["steps"]["no change"]["wire"]["up"], 3 * CONTENTS_BYTES)

    def test_rsync(self):
        self.assertLess(self.taken_through("rsync")["steps"]["no change"]["wire"]["up"], CONTENTS_BYTES)

    def test_drumlin(self):
        self.assertLess(self.taken_through("drumlin")["steps"]["no change"]["wire"]["up"], 100_000)

    def test_a_question_is_a_failure(self):
        asked = self.round(Asking)["steps"]["first"]
        self.assertEqual(asked["status"], "failed")
        self.assertIn("Host key verification failed", asked["output"])

    def test_what_a_session_leaves_behind_is_the_servers(self):
        place = Place(Path(self.folder.name) / "place", Path(self.folder.name) / "source", far=True)
        place.make()
        tool = everything()["tar"](place)
        tool.begin()
        try:
            environment = tool.environment()
            # Ends on this side at once, and goes on there.
            figures = measure.run(tool.over("sleep 50 > /dev/null 2>&1 &"), environment, servers=tool.servers(), helpers=[tool.wire().pid])
            self.assertLess(figures["wall"], 20)
            until = time.monotonic() + 20
            while "sleep" not in (names := [name(pid) for pid in measure.below(tool.servers())]) and time.monotonic() < until:
                time.sleep(0.01)
            self.assertIn("sleep", names)  # the server's family still, not the client's
        finally:
            tool.end()
            measure.end(measure.below([os.getpid()]) - {os.getpid()})


class WhoReaches(unittest.TestCase):
    def test_who_can_not_is_left_out(self):
        self.assertEqual(choose(["cp"], far=True), ([], [("cp", "it keeps its repository on the same machine")]))
        reach = {row.name for row in everything().values() if row.reaches()}
        self.assertLessEqual({"drumlin", "tar", "rsync", "restic", "rustic", "borg", "borg2", "kopia", "bup", "bupstash", "rdiff-backup",
                              "duplicity", "burp", "obnam", "bacula"}, reach)
        self.assertTrue(reach.isdisjoint({"cp", "dar", "zpaq", "storebackup"}))
