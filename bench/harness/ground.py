"""Where a run takes place: a fresh ext4 with a journal in a loop file, or a plain folder where there is no root.

Promises that what it made is gone after it: mount, loop device, file. Caches are dropped here, too.
"""

import ctypes
import os
import shutil
import subprocess
import time
from pathlib import Path

# Of each inode of the file system so many bytes: trees of tiny files need many inodes.
BYTES_PER_INODE = 4096
UNMOUNT_ATTEMPTS = 50
CLONE_NEWNS = 0x00020000
DROP = Path("/proc/sys/vm/drop_caches")


def call(*command):
    """A command that must succeed; what it wrote."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def loops_work():
    """Whether loop devices can be had here."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists() and shutil.which("mkfs.ext4") is not None


def apart():
    """Gives this process a namespace of mounts of its own, before it starts a thread: nobody who makes one meanwhile (a server
    in a container) then takes along a file system of ours, which would go on living behind our backs. All mounts that a run
    makes are gone with its last process, whatever that dies of. False where it is not allowed."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        return False
    # What others unmount is to go here, too.
    call("mount", "--make-rslave", "/")
    return True


def drop_caches():
    """Forgets what the kernel has cached; OSError where that is not allowed."""
    os.sync()
    DROP.write_text("3")


class Ground:
    """A file system, or a folder, that is made on entering and gone on leaving."""

    def __init__(self, folder, name, size=0, loop=True):
        """`folder`: where its file lies, or the folder itself; `size`: bytes of the file system, sparse."""
        self.path, self.image = Path(folder) / name, Path(folder) / f"{name}.img"
        # Whether what is written passes the cache below it by: what holds the image may not be able to, as memory isn't.
        self.size, self.loop, self.is_direct = size, loop, loop

    def __enter__(self):
        self.clear()
        if self.loop:
            with open(self.image, "wb") as file:
                file.truncate(self.size)
            call("mkfs.ext4", "-q", "-F", "-m", "0", "-i", BYTES_PER_INODE, "-E", "lazy_itable_init=0,lazy_journal_init=0", self.image)
        self.attach()
        return self

    def __exit__(self, *_):
        self.clear()

    def attach(self):
        self.path.mkdir(parents=True, exist_ok=True)
        if self.loop:
            try:
                device = call("losetup", "--find", "--show", "--direct-io=on", self.image)
            except OSError:
                device, self.is_direct = call("losetup", "--find", "--show", self.image), False
            try:
                call("mount", "-o", "noatime", device, self.path)
            finally:
                # It is in use: so it goes with the mount, whoever takes that away.
                call("losetup", "--detach", device)

    def detach(self, whatever=False):
        """Unmounts it; `whatever` is open there still, if it is not to be used again."""
        if self.loop and os.path.ismount(self.path):
            call("sync", "--file-system", self.path)
            for attempt in range(UNMOUNT_ATTEMPTS):
                try:
                    call("umount", self.path)
                    break
                except OSError:  # a process that was ended a moment ago may not be quite gone
                    if attempt + 1 == UNMOUNT_ATTEMPTS:
                        if not whatever:
                            raise
                        call("umount", "--lazy", self.path)
                    time.sleep(0.1)

    def clear(self):
        self.detach(whatever=True)
        self.image.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)

    def keep(self):
        """Sets what is on the ground aside, to be had back as it is now any number of times."""
        kept = self.image.with_suffix(".kept")
        if self.loop:
            self.detach()
            call("cp", "--sparse=always", self.image, kept)
            self.attach()
        else:
            shutil.rmtree(kept, ignore_errors=True)
            call("cp", "-a", self.path, kept)
        return kept

    def back(self, kept):
        """Puts back what was set aside: same inodes, same times."""
        if self.loop:
            self.detach()
            self.image.unlink()  # should it be mounted elsewhere: nothing is written behind a mounted file system's back
            call("cp", "--sparse=always", kept, self.image)
            self.attach()
        else:
            shutil.rmtree(self.path)
            call("cp", "-a", kept, self.path)


def forget(kept):
    """Removes what was set aside."""
    if kept.is_dir():
        shutil.rmtree(kept)
    else:
        kept.unlink(missing_ok=True)


def room(folder):
    """Bytes that are free below a folder."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize
