"""W7: the disk image of a Debian system, one file: debootstrap's on ext4, 8 GiB and with large packages at scale 1, at least
1 GiB. The six steps: in the third, packages are really installed in it; then it is touched, renamed, cut to half its size.

Needs root, loop devices and a Debian mirror. Two images of one day are alike, not identical."""

import os
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path

from .base import pinned
from .six import LATER, Six

BYTES, LEAST = 8 << 30, 1 << 30
IMAGE = "system.img"
QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}


def call(*command, **more):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", **more)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))[:300]}: status {done.returncode}: {(done.stderr or done.stdout)[-1500:]}")
    return done.stdout


@contextmanager
def bound(at, *what):
    """A mount, for as long as it is needed."""
    call("mount", *what, at)
    try:
        yield at
    finally:
        call("umount", at)


@contextmanager
def mounted(image, at):
    """The image's file system, to be changed."""
    at.mkdir(exist_ok=True)
    try:
        with bound(at, "-o", "loop", image):
            yield at
    finally:
        at.rmdir()


def mirror():
    """The mirror that this machine's packages come from."""
    texts = [path.read_text() for path in [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")] if path.is_file()]
    found = re.search(r"^(?:deb(?: \[.*\])? |URIs: *)(\S+debian/?)(?=\s|$)", "\n".join(texts), re.M)
    return found[1] if found else "http://deb.debian.org/debian"


class W7(Six):
    name = "W7"
    title = "One large file: the disk image of a Debian system"
    needs = ("debootstrap", "mkfs.ext4", "mount")
    same = False

    def __init__(self, scale=1.0, seed=1):
        super().__init__(scale, seed)
        self.of = pinned("W7")
        self.source = f"debootstrap of Debian {self.of['suite']}, changed by installing packages"

    def data(self, folder):
        self.debs = self.home(folder) / "debs"
        return super().data(folder)

    def make(self, tree):
        if os.geteuid() != 0:
            raise OSError("a disk image is made by root only")
        image, root = tree / IMAGE, tree.parent / "root"
        with open(image, "wb") as file:
            file.truncate(max(LEAST, int(BYTES * self.scale)))
        call("mkfs.ext4", "-q", "-F", "-U", "5c0f7a7e-0000-4000-8000-000000000001", image)
        before = self.of["before"][: round(len(self.of["before"]) * self.scale)]
        with mounted(image, root):
            call("debootstrap", "--variant=minbase", self.of["suite"], root, mirror())
            if before:
                self.fetch(root, before, tree.parent / "debs-before")
                self.install(root, tree.parent / "debs-before")
            self.fetch(root, self.of["after"], self.debs)
            told = call("chroot", root, "dpkg-query", "-W", "-f", "${Package} ${Version}\n", env=QUIET)
        return {"packages": len(told.splitlines()), "versions": told.splitlines(), "installed later": sorted(p.name for p in self.debs.glob("*.deb"))}

    @staticmethod
    def fetch(root, packages, debs):
        """Fetches packages with all that the image lacks for them, into a folder outside of it."""
        (debs / "partial").mkdir(parents=True, exist_ok=True)
        call("apt-get", "-q", "-y", "--no-install-recommends", "--download-only", "-o", f"Dir::State::status={root}/var/lib/dpkg/status",
             "-o", f"Dir::Cache::archives={debs}", "-o", "Debug::NoLocking=1", "install", *packages)

    @classmethod
    def install(cls, root, debs):
        """Installs them in the image, as its own dpkg does it."""
        policy = root / "usr/sbin/policy-rc.d"
        policy.write_text("#!/bin/sh\nexit 101\n")  # no service that is installed is started
        policy.chmod(0o755)
        place = root / "var/cache/debs"
        place.mkdir()
        with bound(root / "proc", "-t", "proc", "proc"), bound(place, "--bind", debs):
            names = [f"/var/cache/debs/{path.name}" for path in sorted(debs.glob("*.deb"))]
            cls.settled(lambda: call("chroot", root, "dpkg", "--force-unsafe-io", "--skip-same-version", "--install", *names, env=QUIET))
        place.rmdir()

    @staticmethod
    def settled(step, turns=4):
        """Repeats a step that gets further each time: dpkg takes archives as they come, and refuses one that needs another one's
        configuration before it is even unpacked."""
        for _ in range(turns - 1):
            try:
                return step()
            except OSError:
                pass
        return step()

    def scramble(self, tree, _):
        with mounted(tree / IMAGE, tree.parent / "image") as root:
            self.install(root, self.debs)

    def new_times(self, tree, _):
        os.utime(tree / IMAGE, ns=(LATER * 10**9, LATER * 10**9 + 123_456_789))

    def rename(self, tree, _):
        (tree / IMAGE).rename(tree / "renamed.img")

    def halve(self, tree, _):
        os.truncate(tree / "renamed.img", (tree / "renamed.img").stat().st_size // 2)


WORKLOADS = [W7]
