"""The layers that make a folder slow, and a file a disk with one head: what they let through, and what each call costs there."""

import os
import shutil
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harness.delay import Slow, compiled

SPINDLE = Path(__file__).resolve().parent.parent / "harness" / "delay" / "spindle.c"
LACKING = next((what for what, there in (
    ("root", os.geteuid() == 0), ("/dev/fuse", os.path.exists("/dev/fuse")), ("fusermount3", shutil.which("fusermount3")),
    ("libfuse3-dev and pkg-config", shutil.which("pkg-config") and not subprocess.run(["pkg-config", "--exists", "fuse3"]).returncode),
) if not there), None)


def took(function, *arguments):
    """Seconds that a call takes."""
    begun = time.monotonic()
    function(*arguments)
    return time.monotonic() - begun


class Delays(unittest.TestCase):
    def setUp(self):
        if LACKING:
            self.skipTest(f"needs {LACKING}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    DELAY = 0.03

    def slow(self):
        """A tree of two folders seen through the layer."""
        tree = self.folder / "tree"
        (tree / "a" / "b").mkdir(parents=True)
        (tree / "a" / "b" / "file").write_bytes(bytes(range(256)) * 1000)
        (tree / "link").symlink_to("a/b")
        os.utime(tree / "a" / "b" / "file", ns=(1, 1_234_567_890_123_456_789))
        layer = Slow(tree, self.folder / "seen", self.DELAY * 1000)
        self.addCleanup(layer.unmount)
        return tree, layer.mount()

    def test_what_is_slow_is_as_it_was(self):
        tree, seen = self.slow()
        self.assertEqual((seen / "a" / "b" / "file").read_bytes(), (tree / "a" / "b" / "file").read_bytes())
        self.assertEqual(sorted(os.listdir(seen)), ["a", "link"])
        self.assertEqual(os.readlink(seen / "link"), "a/b")
        self.assertEqual((seen / "a" / "b" / "file").stat().st_mtime_ns, 1_234_567_890_123_456_789)
        with self.assertRaises(FileNotFoundError):
            (seen / "a" / "nothing").stat()
        with self.assertRaises(OSError):
            (seen / "new").write_text("it is read-only")

    def test_each_stat_and_each_open_takes_its_time_and_nothing_else(self):
        _, seen = self.slow()
        file = seen / "a" / "b" / "file"
        for _ in range(2):  # nothing is remembered of the first
            # However deep it lies.
            self.assertGreaterEqual(took(os.stat, file), self.DELAY)
        self.assertLess(min(took(os.stat, file) for _ in range(5)), 2 * self.DELAY)
        opened = []
        self.assertGreaterEqual(took(lambda: opened.append(os.open(file, os.O_RDONLY))), self.DELAY)
        self.addCleanup(os.close, opened[0])
        self.assertGreaterEqual(took(os.fstat, opened[0]), self.DELAY)
        self.assertLess(min(took(os.pread, opened[0], 4096, 4096 * at) for at in range(5)), self.DELAY)
        # Of several at once each waits by itself, at the same time.
        with ThreadPoolExecutor(16) as threads:
            self.assertLess(min(took(lambda: list(threads.map(os.stat, [file] * 16))) for _ in range(3)), 8 * self.DELAY)

    MIB = 1 << 20

    @contextmanager
    def disk(self, mib, rate):
        """A file of so many MiB as a disk that passes so many 10^6 bytes a second below its head: opened."""
        image, seen = self.folder / "image", self.folder / "seen"
        with image.open("wb") as file:
            file.truncate(mib * self.MIB)
        seen.mkdir()
        with subprocess.Popen([compiled(SPINDLE, self.folder, "-lm"), image, seen, str(rate)]) as process:
            try:
                until = time.monotonic() + 10
                while not (seen / "disk").exists():
                    self.assertTrue(time.monotonic() < until and process.poll() is None, "the disk does not come up")
                    time.sleep(0.02)
                disk = os.open(seen / "disk", os.O_RDWR)
                try:
                    yield disk, image
                finally:
                    os.close(disk)
            finally:
                subprocess.run(["fusermount3", "-u", "-z", seen], check=True)

    def test_a_disk_keeps_what_is_written(self):
        with self.disk(64, 1000) as (disk, image):
            for at, what in ((5 * self.MIB + 17, b"here"), (60 * self.MIB, b"x" * self.MIB)):
                self.assertEqual(os.pwrite(disk, what, at), len(what))
                self.assertEqual(os.pread(disk, len(what), at), what)
                self.assertEqual(image.read_bytes()[at:at + len(what)], what)

    def test_a_disk_has_one_head(self):
        # A MiB passes in 52 ms.
        with self.disk(64, 20) as (disk, _):
            read = lambda mib: os.pread(disk, 4096, mib * self.MIB)
            read(0)
            # On from where it ended: nothing is moved.
            self.assertLess(min(took(os.pread, disk, 4096, 4096 * at) for at in range(1, 9)), 4e-3)
            # Somewhere else: 2 ms and half a turn at least, and the farther the more.
            near = [took(read, mib) for mib in (4, 2, 4, 2)]
            far = [took(read, mib) for mib in (63, 1, 63, 1)]
            self.assertGreaterEqual(min(near), 6e-3)
            self.assertGreaterEqual(min(far), 15e-3)
            self.assertLess(min(near), min(far))
            # Its rate, and two at once take as long as one after the other.
            read(8)
            self.assertGreaterEqual(took(os.pread, disk, self.MIB, 8 * self.MIB + 4096), 0.05)
            with ThreadPoolExecutor(4) as threads:
                self.assertGreaterEqual(took(lambda: list(threads.map(read, (10, 20, 30, 40)))), 4 * 8e-3)


if __name__ == "__main__":
    unittest.main()
