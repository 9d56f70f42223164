"""Layers of FUSE's, compiled when they are first used: slow.c, on which each stat and each open takes its time; spindle.c, a disk with one head."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

PATIENCE_SECONDS = 5
SOURCE = Path(__file__).resolve().with_name("slow.c")


def compiled(source, folder, *libraries):
    """Compiles a layer of FUSE's; the program."""
    program = Path(folder) / Path(source).stem
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True)
    if flags.returncode:
        raise OSError("the layer needs libfuse3's headers: install libfuse3-dev and pkg-config")
    subprocess.run(["gcc", "-O2", "-Wall", "-o", str(program), str(source), *flags.stdout.split(), "-lpthread", *libraries], check=True)
    return program


class Slow:
    """A folder seen through the layer, read-only, while it is mounted."""

    def __init__(self, folder, at, delay_ms):
        self.folder, self.at, self.delay_ms, self.process = Path(folder), Path(at), delay_ms, None

    def mount(self):
        """Where the folder is seen: a folder in the mount, so that the mount itself is not what is saved."""
        self.at.mkdir(exist_ok=True)
        self.made = tempfile.mkdtemp()
        self.process = subprocess.Popen([compiled(SOURCE, self.made), str(self.folder.parent), str(self.at), str(self.delay_ms)])
        seen = self.at / self.folder.name
        until = time.monotonic() + 10
        while not os.path.ismount(self.at):
            if time.monotonic() > until or self.process.poll() is not None:
                raise OSError("the slow layer does not come up")
            time.sleep(0.02)
        return seen

    def unmount(self):
        if self.process:
            subprocess.run(["fusermount3", "-u", "-z", str(self.at)], check=False)
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                # Somebody sees it still, in a namespace of mounts of his own perhaps: without the layer he sees nothing more.
                self.process.kill()
                self.process.wait()
            self.process = None
            shutil.rmtree(self.made)
