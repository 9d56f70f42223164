"""Fresh file systems in loop files: made, set aside, put back, gone; even while somebody else sees them. Needs root."""

import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from harness.ground import Ground, forget, loops_work

SIZE = 64 << 20


class Grounds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def changed_and_put_back(self, loop, meanwhile=lambda: None, afterwards=lambda: None):
        with Ground(self.folder, "ground", SIZE, loop) as ground:
            (ground.path / "a").write_text("as it was")
            before = (ground.path / "a").stat()
            kept = ground.keep()
            (ground.path / "a").write_text("changed")
            (ground.path / "b").mkdir()
            meanwhile()
            ground.back(kept)
            afterwards()
            if loop:
                ground.detach()
                ground.attach()
                self.assertEqual(sorted(path.name for path in ground.path.iterdir()), ["a", "lost+found"])
            self.assertEqual((ground.path / "a").read_text(), "as it was")
            self.assertFalse((ground.path / "b").exists())
            self.assertEqual((ground.path / "a").stat().st_mtime_ns, before.st_mtime_ns)
            if loop:
                self.assertEqual((ground.path / "a").stat().st_ino, before.st_ino)
        forget(kept)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_folder(self):
        self.changed_and_put_back(loop=False)

    def test_a_disk_that_refuses_direct_io_is_told(self):
        for refused, is_direct in (("--direct-io=on", False), ("nothing", True)):
            def call(*words):
                if refused in words:
                    raise OSError("not on this disk")
                return "/dev/loop9"
            with mock.patch("harness.ground.call", call):
                ground = Ground(self.folder, "ground")
                ground.attach()
            self.assertEqual(ground.is_direct, is_direct)

    @unittest.skipUnless(loops_work(), "needs root and loop devices")
    def test_a_loop_file(self):
        try:
            self.changed_and_put_back(loop=True)
        except OSError as error:
            self.skipTest(f"no loop file can be mounted here: {error}")

    @unittest.skipUnless(loops_work(), "needs root and loop devices")
    def test_a_loop_file_that_another_namespace_of_mounts_keeps_alive(self):
        holders = []
        self.addCleanup(lambda: [(holder.kill(), holder.communicate()) for holder in holders])
        script = f"echo; read word; mkdir {self.folder}/ground/c; sync; echo; exec sleep 60"

        def meanwhile():
            holders.append(subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            holders[0].stdout.readline()

        def afterwards():
            holders[0].stdin.write(b"go on\n")
            holders[0].stdin.flush()
            holders[0].stdout.readline()

        try:
            self.changed_and_put_back(True, meanwhile, afterwards)
        except OSError as error:
            self.skipTest(f"no loop file can be mounted here: {error}")
