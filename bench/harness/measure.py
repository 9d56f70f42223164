"""One run of a command, measured: wall and processor seconds, and the peak of memory of all its processes.

Promises that nothing of a run goes on after it was killed, and that what a run leaves behind it (an agent, a daemon) can
be found and ended: this process adopts all orphans below it.
"""

import ctypes
import mmap
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from .beside import Beside
from .cpu import cpu_of, stat_of

# Seconds between two looks at the memory. The kernel keeps each process's peak, so that looking seldom misses only the
# last moments of a process; looking often takes a part of the cores that are measured.
LOOK_SECONDS = 0.1
FIRST_LOOK_SECONDS = 0.004
# How much of what a failed command wrote is kept.
TAIL_BYTES = 4000
# What variables of programs that are measured begin with.
SETTINGS = ("BORG_", "BUPSTASH_", "BUP_", "BZIP2", "DRUMLIN_", "DUPLICITY_", "GZIP", "KOPIA_", "OBNAM_", "RESTIC_", "RSYNC_", "RUSTIC_", "TAR_OPTIONS", "XZ_", "ZSTD_")
PR_SET_CHILD_SUBREAPER = 36
# The signals by which a run is stopped, besides the keyboard's.
ENDING = (signal.SIGTERM, signal.SIGHUP)
MADV_POPULATE_WRITE = 23
LIBC = ctypes.CDLL(None)


class Failed(Exception):
    """A command that ended with an error: it is told as such, and the others go on."""

    def __init__(self, command, status, output):
        super().__init__(f"{command}: status {status}\n{output}")
        self.status, self.output = status, output


class Overdue(Exception):
    """A command that was killed because it took longer than it was given."""

    def __init__(self, command, limit):
        super().__init__(f"{command}: killed after {limit:.0f} s")
        self.limit = limit


def adopt():
    """Makes orphans below this process its children, so that they are seen, and end with it."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_in_order():
    """From now on this process, told to end or left by its terminal, does so by an exception: what it mounted and started goes, too."""
    for sign in ENDING:
        # Not what nohup has it pass over.
        if signal.getsignal(sign) is signal.SIG_DFL:
            signal.signal(sign, lambda sign, _: sys.exit(128 + sign))


def end_at_once():
    """The same as ever: of those that this process starts to work for it, and that have inherited the above."""
    for sign in ENDING:
        if signal.getsignal(sign) is not signal.SIG_IGN:
            signal.signal(sign, signal.SIG_DFL)


def family(root):
    """A process and all below it."""
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                queue += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
        except OSError:
            pass
    return found


def below(roots):
    """All processes of some families."""
    return {pid for root in roots for pid in family(root)}


def theirs(servers, helpers, clients):
    """The processes below this one that are neither a server's nor a helper's, and those of `clients`."""
    return below([os.getpid()]) - {os.getpid()} - below([*servers, *helpers]) | below(clients)


def peak_of(pid):
    """Bytes of a process's largest resident size so far."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def forget_peak(pid):
    """Begins a process's largest resident size anew."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


def end(pids, patience=5.0):
    """Ends processes, by force if they don't go, and waits for those that are ours."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, sign)
            except OSError:
                pass
        until = time.monotonic() + patience
        while time.monotonic() < until:
            reap()
            pids = [pid for pid in pids if alive(pid)]
            if not pids:
                return
            time.sleep(0.02)


def dismiss(processes):
    """Ends programs that were started here, all at once, by force if they don't go."""
    end([process.pid for process in processes])
    for process in processes:
        process.wait()


def alive(pid):
    fields = stat_of(pid)
    return bool(fields) and fields[0] != "Z"


def reap(standing=None):
    """Takes leave of orphans that have ended; their processor seconds, of those in `standing` without what is said there."""
    spent = 0.0
    for pid in family(os.getpid())[1:]:
        try:
            state = stat_of(pid)
            if state and state[0] == "Z" and int(state[1]) == os.getpid() and pid not in _owned:
                _, _, usage = os.wait4(pid, os.WNOHANG)
                spent += max(0.0, usage.ru_utime + usage.ru_stime - (standing or {}).get(pid, 0.0))
        except OSError:
            pass
    return spent


# Children that somebody here waits for: not to be reaped as orphans.
_owned = set()


class Looker(threading.Thread):
    """Looks at the memory of the client's and of the server's processes until it is told to stop."""

    def __init__(self, servers, helpers, clients):
        super().__init__(daemon=True)
        self.servers, self.helpers, self.clients, self.client, self.server = servers, helpers, clients, 0, 0
        self.done = threading.Event()

    def run(self):
        # Often at first: a backup of nothing new may be over in 20 ms.
        pause = FIRST_LOOK_SECONDS
        while not self.done.wait(pause):
            self.look()
            pause = min(pause * 1.1, LOOK_SECONDS)

    def look(self):
        self.client = max(self.client, sum(map(peak_of, theirs(self.servers, self.helpers, self.clients))))
        self.server = max(self.server, sum(map(peak_of, below(self.servers))))

    def stop(self):
        self.done.set()
        self.join()


def run(command, env=None, cwd=None, limit=None, servers=(), helpers=(), fine=(0,), clients=(), fresh=0):
    """A command of the shell, measured.

    `limit`: seconds after which it is killed. `servers`: processes whose families are counted apart; `helpers`: those
    whose families are not counted. All other processes below this one count as the command's: what it leaves behind it (an agent),
    and what was there before (a daemon), from now on; `clients`: families that count so wherever they are.
    `fine`: the statuses that are no failure. `fresh`: so many bytes of free memory are touched before, see `touch`.

    `wall`, `cpu`: seconds; `memory`: bytes, the sum over the processes that are there at once of the largest size of each
    so far, as far as anybody looked, or the largest one's by itself if that is more; None if neither is known; `server_cpu`, `server_memory`: the same of the servers, None without one;
    `others`, `stolen`: processor seconds of all other programs meanwhile, and those that the machine's host took.
    """
    # Of all file systems: what was written for a run, its source among it, is paid for by none.
    os.sync()
    touch(fresh)
    before = below([os.getpid()])
    # This process's, too: what it has used itself would pass for the shell's.
    for pid in before:
        forget_peak(pid)
    looker = Looker(servers, helpers, clients)
    served = sum(map(cpu_of, below(servers)))
    reap()
    standing = {pid: cpu_of(pid) for pid in theirs(servers, helpers, clients)}
    beside = Beside(lambda: below([*servers, *helpers]))
    with tempfile.TemporaryFile() as output:
        start = time.monotonic()
        process = subprocess.Popen(command, shell=True, env={**environment(), **(env or {})}, cwd=cwd, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output, executable="/bin/bash", start_new_session=True)
        _owned.add(process.pid)
        looker.start()
        in_time = False
        try:
            in_time = wait(process.pid, limit)
            wall = time.monotonic() - start
        finally:
            looker.stop()
            if not in_time:
                end(below([os.getpid()]) - before)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            _owned.discard(process.pid)
        if not in_time:
            raise Overdue(command, limit)
        if process.returncode not in fine:
            output.seek(max(0, output.seek(0, os.SEEK_END) - TAIL_BYTES))
            raise Failed(command, process.returncode, output.read().decode(errors="replace"))
    cpu = usage.ru_utime + usage.ru_stime + reap(standing)
    # By ticks, so that one which did nothing may seem to have had one less.
    cpu += sum(max(0.0, cpu_of(pid) - standing.get(pid, 0.0)) for pid in theirs(servers, helpers, clients))
    others, stolen = beside.since(cpu)
    # The usage of the shell is that of all it waited for: its peak is the largest one's, whenever that was. It counts what it was
    # before it became a shell, too, which is this process: it is of use only where it is larger.
    peak = usage.ru_maxrss * 1024
    memory = max(looker.client, peak if peak > peak_of(os.getpid()) else 0) or None
    result = {"wall": wall, "cpu": cpu, "memory": memory, "server_cpu": None, "server_memory": None,
              "others": round(others, 2), "stolen": round(stolen, 2)}
    if servers:
        result["server_cpu"] = max(0.0, sum(map(cpu_of, below(servers))) - served)
        result["server_memory"] = looker.server
    return result


def environment():
    """This process's, without what its user has set for the programs that are measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS)}


def touch(size):
    """Uses so much of the free memory once, but for a part that is left: never what holds the caches, which have just been made hot.

    A virtual machine may give its host back what is free; using it again then takes seconds a gigabyte. Whose turn comes after a
    large file was removed would pay for that: tar took 0.8 or 2.5 seconds for the same 860 MB.
    """
    free = int(re.search(r"^MemFree:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M)[1]) * 1024
    if (size := min(size, free * 7 // 8)) <= 0:
        return
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        # In large pages, where they can be had: a fault each 2 MiB instead of one each 4 KiB.
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError:  # before Linux 5.14
            memory[::mmap.PAGESIZE] = bytes(-(-size // mmap.PAGESIZE))


def wait(pid, limit):
    """Waits for a child without taking leave of it; False when the time is over first."""
    fd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(None if limit is None else limit * 1000))
    finally:
        os.close(fd)
