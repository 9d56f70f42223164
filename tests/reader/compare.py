#!/usr/bin/env python3
"""Runs the reader on one golden repository in all ways and compares what it says with expected.json.

    compare.py GOLDEN      a folder with repository/, expected.json and the files that open it

One line a check; exit status 0 if all hold, 1 if not. Who isn't root can't make devices, foreign owners and some
attributes: these are compared as the reader lists them, and left out of what it restored.
"""

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode

from blake3 import blake3

import reader

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py")
ROOT = os.geteuid() == 0
EMPTY = blake3(b"").hexdigest()
TYPES = {"dir": "directory", "fifo": "pipe", "char device": "character device"}
OPENERS = (("--key-file", "key-file.txt"), ("--passphrase-file", "passphrase.txt"), ("--recovery", "recovery.txt"))
WAYS = ((), ("--without-index",), ("--compare-index",))


class Checks:
    failed = False

    def say(self, what, differences):
        """One line, and a few of the differences below it."""
        self.failed = self.failed or bool(differences)
        print(f"{'FAILED' if differences else 'ok'}: {what}", flush=True)
        for difference in differences[:5]:
            print(f"       {difference}")


def run(golden, opener, *arguments):
    """Exit status, standard output and standard error of the reader."""
    option, file = opener
    command = [sys.executable, READER, os.path.join(golden, "repository"), option, os.path.join(golden, file)]
    done = subprocess.run(command + list(arguments), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def rows(golden, opener, *arguments):
    """The reader's JSON lines, and what went wrong."""
    status, out, errors = run(golden, opener, *arguments)
    wrong = [] if status == 0 else [f"exit status {status}: {errors.strip()[-300:]}"]
    return [json.loads(line) for line in out.splitlines()], wrong


def differences(expected, found):
    """Between two dictionaries of dictionaries; fields that are not expected are not compared."""
    out = [f"{key!r} is missing" for key in expected if key not in found]
    out += [f"{key!r} is not expected" for key in found if key not in expected]
    for key in expected:
        for name, value in expected[key].items() if key in found else ():
            if found[key].get(name) != value:
                out.append(f"{key!r}: {name} is {str(found[key].get(name))[:100]}, expected {str(value)[:100]}")
    return out


def holes(steps):
    """Offsets and lengths, from offset, length, step and how many times."""
    return sorted([offset + i * step, length] for offset, length, step, times in steps for i in range(times))


def expected_entries(expected, snapshot):
    """What the snapshot holds, by path from the uppermost directory on."""
    source = expected["source"].encode().strip(b"/")
    stream = snapshot["state"] == "stream"
    above = [] if stream else [b"/".join(source.split(b"/")[:i + 1]) for i in range(source.count(b"/") + 1)]
    out = {path: {"type": "directory"} for path in above}
    for e in expected["entries"]:
        if e.get("state") != snapshot["state"] and (stream or "state" in e):
            continue
        path = b64decode(e["path"]) if stream else source + b"/" + b64decode(e["path"])
        kind = TYPES.get(e.get("type", "file"), e.get("type", "file"))
        out[path] = {
            "type": kind, "mode": e.get("mode", 0o644), "mtime": e["mtime"], "size": e.get("size", 0),
            "uid": e.get("uid", 0), "gid": e.get("gid", 0), "device": e.get("rdev", 0), "flags": e.get("flags", 0),
            "target": e.get("target"), "xattrs": e.get("xattrs", {}), "link": e.get("link"),
            "blake3": e.get("blake3", EMPTY) if kind == "file" else None, "holes": holes(e.get("holes", []))}
    if snapshot["until"]:
        last = tuple(map(b64decode, snapshot["until"]))
        out = {path: e for path, e in out.items() if order(path) <= last}
    return out


def order(path):
    directory, _, name = path.rpartition(b"/")
    return directory.replace(b"/", b"\0"), name


def group_links(entries, identity):
    """Puts one number into `link` of all names of a file, as expected.json does but of its own choice."""
    groups = {}
    for path, e in entries.items():
        groups.setdefault(identity(e), []).append(path)
    for paths in groups.values():
        for path in paths:
            entries[path]["link"] = sorted(paths) if len(paths) > 1 else None


def expected_links(entries):
    named = {path: e for path, e in entries.items() if e.get("link") is not None}
    group_links(named, lambda e: e["link"])


def check_entries(golden, expected, opener, way, contents=True):
    out = []
    for snapshot in expected["snapshots"]:
        wanted = expected_entries(expected, snapshot)
        expected_links(wanted)
        if not contents:
            for e in wanted.values():
                e.pop("blake3", None)
                e.pop("holes", None)
        found, wrong = rows(golden, opener, *way, "entries", snapshot["id"])
        paths = [b64decode(e["path"]) for e in found]
        if [order(p) for p in paths] != sorted(order(p) for p in paths):
            wrong.append("entries out of order")
        by_path = dict(zip(paths, found))
        group_links(by_path, lambda e: (e["filesystem"], e["inode"]) if e["nlink"] > 1 else (e["path"],))
        out += wrong + differences(wanted, by_path)
    return out


def file_hash(path):
    h = blake3()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def scan(top):
    """What a restore made, in the terms of expected.json."""
    out, kinds = {}, {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "pipe",
                      stat.S_IFSOCK: "socket", stat.S_IFCHR: "character device", stat.S_IFBLK: "block device"}
    for folder, folders, files in os.walk(os.fsencode(top)):
        for name in folders + files:
            path = os.path.join(folder, name)
            s = os.lstat(path)
            kind = kinds[stat.S_IFMT(s.st_mode)]
            target = b64encode(os.readlink(path)).decode() if kind == "symlink" else None
            xattrs = {}
            for attribute in os.listxattr(path, follow_symlinks=False):
                value = os.getxattr(path, attribute, follow_symlinks=False)
                xattrs[b64encode(os.fsencode(attribute)).decode()] = b64encode(value).decode()
            out[os.path.relpath(path, os.fsencode(top))] = {
                "type": kind, "mode": stat.S_IMODE(s.st_mode), "mtime": list(divmod(s.st_mtime_ns, 10**9)),
                "size": s.st_size if kind in ("file", "symlink") else 0, "uid": s.st_uid, "gid": s.st_gid,
                "device": s.st_rdev if "device" in kind else 0, "target": target, "xattrs": xattrs,
                "blake3": file_hash(path) if kind == "file" else None, "inode": s.st_ino,
                "allocated": s.st_blocks * 512}
    group_links(out, lambda e: e["inode"])
    return out


def allowed(folder, name, value):
    """Whether this attribute can be given here at all."""
    path = os.path.join(folder, "attribute")
    with open(path, "wb"):
        pass
    try:
        os.setxattr(path, b64decode(name), b64decode(value))
        return True
    except OSError:
        return False
    finally:
        os.unlink(path)


def can_have_holes(folder):
    path = os.path.join(folder, "hole")
    with open(path, "wb") as f:
        f.truncate(1 << 20)
    try:
        return os.stat(path).st_blocks * 512 < 1 << 20
    finally:
        os.unlink(path)


def check_restore(golden, expected, opener, way):
    out = []
    for snapshot in expected["snapshots"]:
        with tempfile.TemporaryDirectory(prefix="drumlin-reader-") as folder:
            target = os.path.join(folder, "target")
            status, _, errors = run(golden, opener, *way, "restore", snapshot["id"], target)
            found, wanted = scan(target), expected_entries(expected, snapshot)
            expected_links(wanted)
            sparse = can_have_holes(folder)
            for path, e in list(wanted.items()):
                missing = sum(length for _, length in e.pop("holes", []) if length >= 65536)
                if sparse and missing and path in found and found[path]["allocated"] > e["size"] - missing // 2:
                    out.append(f"{path!r}: restored without its holes")
                if "xattrs" in e:
                    e["xattrs"] = {n: v for n, v in e["xattrs"].items() if allowed(folder, n, v)}
                e.pop("flags", None)
                if not ROOT:
                    e.pop("uid", None), e.pop("gid", None)
                    if "device" in e["type"]:
                        del wanted[path]
            if status and ROOT:
                out.append(f"exit status {status}: {errors.strip()[-300:]}")
            out += differences(wanted, found)
            for folder, folders, _ in os.walk(target):  # so that it can be removed again
                for name in folders:
                    os.chmod(os.path.join(folder, name), 0o700)
    return out


def check_lived(golden, expected, opener, way):
    """A repository that the program itself left: the snapshots that count, and the contents of all files in them."""
    found, out = rows(golden, opener, *way, "list")
    out += differences({s["id"]: {} for s in expected["snapshots"]}, {s["id"]: s for s in found})
    lost = set()
    for snapshot in expected["snapshots"]:
        with tempfile.TemporaryDirectory(prefix="drumlin-reader-") as folder:
            target = os.path.join(folder, "target")
            status, _, errors = run(golden, opener, *way, "restore", snapshot["id"], target)
            hurt = "findings" in expected
            if status and not hurt:
                out.append(f"exit status {status}: {errors.strip()[-300:]}")
            source = os.path.join(target, expected["source"].strip("/"))
            paths = [os.path.join(above, file) for above, _, files in os.walk(source) for file in files]
            restored = {os.path.relpath(path, source): {"blake3": file_hash(path)[:32]} for path in paths}
            wanted = {k: {"blake3": v} for k, v in snapshot["saved" if hurt else "files"].items()}
            if hurt:
                # The reader heals nothing: what something has happened to is named and left out, and all else is there.
                named = {k for k in wanted if repr(os.path.join(expected["source"], k).strip("/").encode()) in errors}
                out += [f"{k} came back, and was named" for k in named & restored.keys()]
                out += [f"status {status}, {len(named)} named"] if named and status != 1 or len(named) == len(wanted) else []
                lost |= named
                wanted = {k: v for k, v in wanted.items() if k not in named}
            out += differences(wanted, restored)
    out += ["nothing is lost"] if "findings" in expected and not lost else []
    return out


def check_refused(golden, file, words):
    status, out, errors = run(golden, ("--key-file", file), "list")
    return [] if status == 1 and not out and words in errors else [f"exit status {status}: {out[:100]} {errors[:200]}"]


def read_whole(repository, name):
    """Reads all of one object, and says what is in it."""
    folder, _, rest = name.partition("/")
    ident = bytes.fromhex(rest.rpartition("/")[2])
    if folder == "keys":
        k = repository.key_object(ident)
        repository.certificates.clear()
        return k, repository.certificate(ident), repository.label(k)
    if folder == "index":
        return repository.read_index_object(ident)
    if folder == "snapshots":
        return repository.snapshot(ident)
    if folder == "decisions":
        return repository.verdict(ident)
    if folder == "sessions":
        store, config = repository.store, repository.config
        header, signed = reader.open_small(store.read(name), "small object", repository.index_secrets, reader.SESSION,
                                           ident, config.suite)
        repository.check_signature(signed.signer, signed.signature, "session", header + signed.signer + signed.body)
        return reader.cbor(signed.body)
    kind = reader.DATA_PACK if folder == "data" else reader.TREE_PACK
    table = repository.read_pack_table(ident, kind)
    out = []
    for block in table.blocks:
        if block.codec != reader.PADDING:
            repository.blocks.clear()  # what was read before the damage
            raw = repository.block_bytes(reader.Place(ident, kind, table, block, 0, 0))
            key = repository.data_key if kind == reader.DATA_PACK else repository.tree_key
            for chunk, offset, length in block.chunks:
                reader.need(reader.chunk_id(key, raw[offset:offset + length]) == chunk, "a chunk that is not its id's")
            out.append(raw)
    return table, out


def check_damage(golden, names):
    """No changed byte goes unnoticed, but in padding blocks, which nobody reads."""
    def opened(store):
        repository = reader.Repository(store)
        repository.use(reader.parse_recovery_file(reader.file_bytes(os.path.join(golden, "recovery.txt"))))
        repository.trouble = reject
        return repository

    def reject(what):
        raise reader.Refused(what)

    out, chance = [], random.Random(1)
    with tempfile.TemporaryDirectory(prefix="drumlin-reader-") as folder:
        root = os.path.join(folder, "repository")
        shutil.copytree(os.path.join(golden, "repository"), root, copy_function=shutil.copyfile)
        repository = opened(reader.Store(root))
        for name in sorted(names):
            path = os.path.join(root, name)
            whole = reader.file_bytes(path)
            right = None if name == "config" else read_whole(repository, name)
            ends = [*range(32), *range(len(whole) - 49, len(whole))]
            for at in ends + chance.choices(range(len(whole)), k=20):
                with open(path, "wb") as f:
                    f.write(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1:])
                try:
                    found = opened(reader.Store(root)) if name == "config" else read_whole(repository, name)
                    if name == "config" or found != right:
                        out.append(f"{name}: byte {at} was changed and nobody noticed")
                    elif not (name[:5] in ("data/", "tree/") and in_padding(right[0], at)):
                        out.append(f"{name}: byte {at} does not matter")
                except reader.Refused:
                    pass
            with open(path, "wb") as f:
                f.write(whole)
            if name != "config":
                read_whole(repository, name)
    return out


def in_padding(table, at):
    return any(b.codec == reader.PADDING and b.offset <= at < b.offset + b.stored for b in table.blocks)


def main(golden):
    golden = os.path.normpath(golden)
    checks = Checks()
    name = os.path.basename(golden)
    expected = json.loads(reader.file_bytes(os.path.join(golden, "expected.json")))

    found = {}
    for folder, _, files in os.walk(os.path.join(golden, "repository")):
        for file in files:
            path = os.path.join(folder, file)
            # One that the program left has the first half of each hash.
            length = len(expected["objects"]["config"])
            found[os.path.relpath(path, os.path.join(golden, "repository"))] = {"blake3": file_hash(path)[:length]}
    checks.say(f"{name}: the objects are those expected",
               differences({k: {"blake3": v} for k, v in expected["objects"].items()}, found))

    if "keys" not in expected:
        for way in WAYS[:2]:
            text = f"with {OPENERS[0][1]}{' ' if way else ''}{' '.join(way)}"
            checks.say(f"{name}: what was saved, {text}", check_lived(golden, expected, OPENERS[0], way))
        if "findings" not in expected:
            checks.say(f"{name}: writer-key-file.txt opens no snapshot",
                       check_refused(golden, "writer-key-file.txt", "reads no snapshots"))
        return checks.failed

    has_passphrase = any(k["passphrase"] for k in expected["keys"])
    for opener in OPENERS if has_passphrase else (OPENERS[0], OPENERS[2]):
        found, wrong = rows(golden, opener, "keys")
        labels = {k["id"]: k["label"] for k in found}
        checks.say(f"{name}: keys, with {opener[1]}",
                   wrong + differences({k["label"]: k for k in expected["keys"]}, {k["label"]: k for k in found}))
        found, wrong = rows(golden, opener, "list")
        for s in found:
            s["signer"], s["until"] = labels.get(s["signer"]), s["partial"]
        wanted = {s["id"]: {k: v for k, v in s.items() if k != "state"} for s in expected["snapshots"]}
        checks.say(f"{name}: list, with {opener[1]}", wrong + differences(wanted, {s["id"]: s for s in found}))
        for way in WAYS:
            text = f"with {opener[1]}{' ' if way else ''}{' '.join(way)}"
            checks.say(f"{name}: entries, {text}", check_entries(golden, expected, opener, way))
        for way in WAYS[:2]:
            text = f"with {opener[1]}{' ' if way else ''}{' '.join(way)}"
            checks.say(f"{name}: restore, {text}", check_restore(golden, expected, opener, way))

    others = (("reader-key-file.txt", True), ("keeper-key-file.txt", False))
    for file, contents in others:
        if os.path.exists(os.path.join(golden, file)):
            checks.say(f"{name}: entries, with {file}",
                       check_entries(golden, expected, ("--key-file", file), (), contents))
    for file, words in (("writer-key-file.txt", "reads no snapshots"), ("revoked-key-file.txt", "was revoked")):
        if os.path.exists(os.path.join(golden, file)):
            checks.say(f"{name}: {file} opens no snapshot", check_refused(golden, file, words))
    checks.say(f"{name}: every damage is noticed", check_damage(golden, expected["objects"]))
    return checks.failed


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: compare.py GOLDEN")
    sys.exit(1 if main(sys.argv[1]) else 0)
