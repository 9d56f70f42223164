"""What the benchmarks here share: one run, measured."""

import os
import subprocess
import threading
import time
from pathlib import Path

# Seconds between two looks at the memory. The kernel keeps each process's peak, so that looking seldom misses only the
# last moments of a process; looking often takes a part of the cores that are measured.
LOOK_SECONDS = 0.1


class Failed(Exception):
    """A tool that ended with an error: it is told as such, and the others go on."""


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


def peak_of(pid):
    """Bytes of a process's largest resident size so far."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(command, env=None, cwd=None):
    """Wall and processor seconds, peak bytes: the sum over the processes that are there at once, or the largest one's."""
    os.sync()
    start = time.monotonic()
    process = subprocess.Popen(command, shell=True, env={**os.environ, **(env or {})}, cwd=cwd,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, executable="/bin/bash")
    peak, done = [0], threading.Event()

    def look():
        pause = 0.01
        while not done.wait(pause):
            peak[0] = max(peak[0], sum(map(peak_of, family(process.pid))))
            pause = min(pause * 2, LOOK_SECONDS)

    looker = threading.Thread(target=look)
    looker.start()
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - start
    done.set()
    looker.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise Failed(f"{command}: status {process.returncode}\n{errors.decode(errors='replace')[-2000:]}")
    # The usage of the shell is that of all it waited for. Its peak counts what it was before it became a shell, too: it is of
    # use only where nothing was seen.
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": peak[0] or usage.ru_maxrss * 1024}
