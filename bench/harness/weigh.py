"""What folders hold: bytes, room on the disk, files, entries."""

import os


def weigh(paths):
    """Bytes and room (each inode once), files and entries (every name) at and below some paths."""
    seen, result = set(), {"bytes": 0, "disk": 0, "files": 0, "entries": 0}
    todo = [str(path) for path in paths if os.path.lexists(path)]
    for path in todo:
        if not os.path.isdir(path):
            count(os.lstat(path), seen, result)
    todo = [path for path in todo if os.path.isdir(path) and not os.path.islink(path)]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                stat = entry.stat(follow_symlinks=False)
                count(stat, seen, result)
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
    return result


def count(stat, seen, result):
    result["entries"] += 1
    regular = stat.st_mode & 0o170000 == 0o100000
    result["files"] += regular
    if stat.st_nlink > 1 and regular:
        if (stat.st_dev, stat.st_ino) in seen:
            return
        seen.add((stat.st_dev, stat.st_ino))
    result["disk"] += stat.st_blocks * 512
    if regular:
        result["bytes"] += stat.st_size
