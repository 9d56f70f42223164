"""Whether a tool makes sure that its repository is on the disk: its calls that sync, counted by strace on a small tree, once
for each version of a tool below a work folder."""

import json
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from .measure import end, environment

CALLS = "fsync,fdatasync,syncfs,sync,sync_file_range,msync"
FILES = 40
PATIENCE_SECONDS = 60.0


def small_tree(path):
    """A tree of some files, the same at all times."""
    for number in range(FILES):
        folder = Path(path) / f"d{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}").write_text(f"file {number}\n" * (number * 37 % 500))


def remembered(file, key, count_):
    """What was counted under a key before, else what `count_` counts now; failures are not remembered."""
    try:
        known = json.loads(Path(file).read_text())
    except (OSError, ValueError):
        known = {}
    if key not in known:
        if (counted := count_()) is None:
            return None
        known[key] = counted
        Path(file).write_text(json.dumps(known))
    return known[key]


def count(tool):
    """Calls that sync during a first backup by a tool, its servers and its daemons; None where strace is missing or the tool fails."""
    if not shutil.which("strace"):
        return None
    root = Path(tool.place.root)
    log, done = root / "strace", root / "done"
    command = f"({' && '.join(filter(None, (tool.init(), tool.backup(1))))}); echo $? > {shlex.quote(str(done))}"
    servers = [word for pid in (*tool.servers(), *tool.clients()) for word in ("-p", str(pid))]
    process = subprocess.Popen(["strace", "-f", "-qq", "-e", f"trace={CALLS}", "-e", "signal=none", "-o", str(log), *servers, "bash", "-c", command],
                               env={**environment(), **tool.environment()}, cwd=root, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    # It would go on as long as there are servers and agents.
    until = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and time.monotonic() < until and not (done.exists() and done.read_text()):
        time.sleep(0.05)
    end([process.pid])
    process.wait()
    status = int(done.read_text()) if done.exists() else None
    return tally(log.read_text(errors="replace")) if status in tool.fine else None


def tally(text):
    """How often each call was made, by strace's log; resumed halves are not counted twice."""
    found = {}
    for name in re.findall(r"^\d+ +(\w+)\(", text, re.M):
        found[name] = found.get(name, 0) + 1
    return found
