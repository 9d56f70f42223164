"""The adapters that start servers, with those that are here: backups and restores are right after files were changed, moved and
deleted, client and server are measured apart, the wire sees the contents, and nothing goes on afterwards."""

import io
import os
import tempfile
import unittest
from contextlib import redirect_stderr

from harness import measure
from harness.options import Options
from harness.rounds import Rounds
from harness.tools import Tool, everything
from harness.workloads.base import Step, Workload

CONTENTS_BYTES = 2_000_000


def changed(tree, _):
    (tree / "gone").unlink()
    (tree / "folder").rename(tree / "moved")
    (tree / "log").write_text("one more line\n" * 50)


class Changing(Workload):
    name, title, source = "changing", "A few files", "made here"

    def steps(self):
        return [Step("first"), Step("no change"), Step("changed", changed)]

    def restored(self):
        return [1, 3]

    def make(self, tree):
        (tree / "folder" / "inner").mkdir(parents=True)
        for name in ("gone", "folder/a", "folder/inner/ein Name"):
            (tree / name).write_bytes(self.random(name).randbytes(CONTENTS_BYTES))
        (tree / "log").write_text("line\n" * 100)
        (tree / "empty").touch()
        (tree / "link").symlink_to("nowhere")
        os.link(tree / "folder" / "a", tree / "same")


class Servers(unittest.TestCase):
    def taken_through(self, row):
        if lacking := row.missing():
            self.skipTest(f"needs {', '.join(lacking)}")
        self.assertTrue(row.version())
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
            options = Options(folder, repeat=1, loop=False, settle=1.1, check="all", count_syncs=False, ceiling=300.0)
            told = Rounds(Changing(), [row], options).run()["rounds"][0]
        for part in ("steps", "restores"):
            for step, figures in told[part].items():
                self.assertEqual(figures["status"], "ok", f"{row.name}, {part}, {step}: {figures.get('output')}")
        first, restore = told["steps"]["first"], told["restores"]["first"]
        self.assertGreater(min(first["memory"], first["server_memory"]), 1e6)
        self.assertGreater(sum(step["server_cpu"] for step in told["steps"].values()), 0)
        self.assertGreater(first["repository"]["bytes"], 3 * CONTENTS_BYTES)
        self.assertGreater(first["wire"]["up"], 3 * CONTENTS_BYTES)
        if "restores" in row.pulls or row.servers is not Tool.servers:
            self.assertGreater(restore["wire"]["down"], 3 * CONTENTS_BYTES)
        self.assertLess(told["steps"]["no change"]["wire"]["up"], CONTENTS_BYTES)
        self.assertEqual([pid for pid in measure.below([os.getpid()]) - {os.getpid()} if measure.alive(pid)], [])


for name, row in everything().items():
    if row.wire is not Tool.wire:
        setattr(Servers, f"test_{name.replace('-', '_')}", lambda self, row=row: self.taken_through(row))
