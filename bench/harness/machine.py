"""What a run took place on."""

import hashlib
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path


def text(path):
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def machine():
    """Processor, cores, memory in bytes, kernel, system; nothing that names the machine."""
    model = re.search(r"^model name\s*: (.*)$", text("/proc/cpuinfo"), re.M)
    memory = re.search(r"^MemTotal:\s+(\d+)", text("/proc/meminfo"), re.M)
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', text("/etc/os-release"), re.M)
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": int(memory[1]) * 1024 if memory else None,
        "kernel": platform.release(),
        "system": system[1] if system else platform.system(),
        "python": platform.python_version(),
    }


def load():
    """How many processes were waiting for a core in the last minute: what else went on."""
    return round(os.getloadavg()[0], 2)


def today():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def digest(program):
    """The first digits of a program's SHA-256, which tells builds of one version apart; None if there is none."""
    try:
        with open(program, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except (OSError, TypeError):
        return None


def commit(folder=Path(__file__).parent):
    """The commit of the checkout that a folder lies in, with a + if anything in it is not as committed; None outside of one."""
    git = ["git", "-C", str(folder)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + "+" * bool(changed)


def made_of(program):
    """", commit …" of what a program in Go was compiled from, where Go is there to read it out of the program; else nothing."""
    try:
        told = subprocess.run(["go", "version", "-m", program], capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, TypeError, subprocess.SubprocessError):
        return ""
    found = re.search(r"vcs\.revision=([0-9a-f]{12})", told)
    return f", commit {found[1]}" + "+" * ("vcs.modified=true" in told) if found else ""


def first_line(command, env=None):
    """The first line that a command writes, on whichever stream; None if it can't be run."""
    try:
        done = subprocess.run(command, shell=True, capture_output=True, text=True, errors="replace", timeout=30,
                              stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = [line.strip() for line in (done.stdout + "\n" + done.stderr).splitlines() if line.strip()]
    return lines[0] if lines and done.returncode != 127 else None
