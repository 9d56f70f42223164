"""What the benchmarks share about the tools that they compare: their environment and what their repositories weigh."""

import statistics


def environment(work):
    """Passphrases, caches and settings of all of them, below a folder."""
    return {
        "RESTIC_PASSWORD": "x", "BORG_PASSPHRASE": "x", "RUSTIC_PASSWORD": "x", "KOPIA_PASSWORD": "x", "DRUMLIN_PASSWORD": "x",
        "XDG_CACHE_HOME": str(work / "cache"), "XDG_CONFIG_HOME": str(work / "config"), "XDG_STATE_HOME": str(work / "state"),
        "KOPIA_CONFIG_PATH": str(work / "config" / "kopia"), "KOPIA_CHECK_FOR_UPDATES": "false",
        "BORG_BASE_DIR": str(work / "borg"),
        "BUPSTASH_KEY": str(work / "bupstash.key"), "BUPSTASH_REPOSITORY": str(work / "repository"),
        "BUPSTASH_QUERY_CACHE": str(work / "cache" / "query"), "BUPSTASH_SEND_LOG": str(work / "cache" / "send"),
    }


def size(path):
    """Bytes and files below a path."""
    if path.is_file():
        return path.stat().st_size, 1
    stats = [p.lstat() for p in path.rglob("*") if p.is_file() and not p.is_symlink()]
    # Names of one file count as files, its bytes once.
    return sum({s.st_ino: s.st_size for s in stats}.values()), len(stats)


def median(rounds, step, what):
    """The median of a figure over the rounds that have the step; `None` if none has."""
    values = [r[step][what] for r in rounds if step in r]
    return statistics.median(values) if values else None


def show(value, digits=1):
    """A number for a table."""
    return "–" if value is None else f"{value:.{digits}f}"
