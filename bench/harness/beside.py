"""What else a machine did while a command was measured: other programs of its own, and what its host gave to other machines."""

import time
from pathlib import Path

from .cpu import TICKS, cpu_of, stat_of

# The flag of a kernel's own thread (PF_KTHREAD), which writes for everybody: nobody can tell for whom.
KERNEL_THREAD = 0x00200000


class Beside:
    """Counts from its making on. `known`: a function that gives the processes whose time is told elsewhere, or is nobody's."""

    def __init__(self, known):
        self.known = known
        self.before = self.now()

    def now(self):
        """Processor seconds so far: of all programs, of the kernel's threads, of this process, of those that are known; and those that the host took."""
        user, nice, system, _, _, _, _, stolen = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
        kernel = sum(cpu_of(pid) for pid in everybody() if is_kernels(pid))
        return (user + nice + system) / TICKS, kernel, time.process_time(), sum(map(cpu_of, self.known())), stolen / TICKS

    def since(self, spent):
        """Processor seconds of other programs, and seconds that the host took; `spent`: those of the command itself.

        The kernel counts by its ticks, so that of a short command they are worth nothing, and of many together all the more: they may be below zero.
        """
        busy, *ours, stolen = (after - before for before, after in zip(self.before, self.now()))
        return busy - sum(ours) - spent, stolen


def everybody():
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def is_kernels(pid):
    fields = stat_of(pid)
    return bool(fields) and bool(int(fields[6]) & KERNEL_THREAD)
