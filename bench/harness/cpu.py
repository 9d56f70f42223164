"""Processor seconds of a process, as the kernel tells them."""

import os
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def stat_of(pid):
    """The fields of a process's `stat` from its state on; None if there is none any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None


def cpu_of(pid):
    """Processor seconds of a process and of the children that it has waited for."""
    fields = stat_of(pid)
    return sum(map(int, fields[11:15])) / TICKS if fields else 0.0
