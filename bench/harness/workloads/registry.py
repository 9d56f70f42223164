"""What registries serve, by their ordinary clients: Go modules and crates, kept in the data folder and fetched once."""

import json
import os
import shutil
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent


def go_module(cache, path, version):
    """The folder with a module's files, as the module proxy serves them."""
    env = {**os.environ, "GOMODCACHE": str(cache / "go"), "GOFLAGS": "-modcacherw", "GO111MODULE": "on"}
    (cache / "go").mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["go", "mod", "download", "-json", f"{path}@{version}"], env=env, cwd=cache, capture_output=True, text=True)
    told = json.loads(done.stdout or "{}")
    if done.returncode or "Dir" not in told:
        raise OSError(f"go mod download {path}@{version}: {told.get('Error') or done.stderr.strip()}")
    return Path(told["Dir"])


def crates(cache):
    """The folder with the sources of all crates of `crates/Cargo.lock`, a folder each."""
    vendored = cache / "crates"
    if not (vendored / ".whole").exists():
        shutil.rmtree(vendored, ignore_errors=True)
        done = subprocess.run(["cargo", "vendor", "--quiet", "--locked", "--versioned-dirs", "--manifest-path",
                               str(HERE / "crates" / "Cargo.toml"), str(vendored)], cwd=HERE / "crates", capture_output=True, text=True)
        if done.returncode:
            raise OSError(f"cargo vendor: {done.stderr.strip()[-2000:]}")
        (vendored / ".whole").touch()
    return vendored


def copy(source, target):
    """Copies a tree with its times; the entries that it has."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    return 1 + sum(len(folders) + len(files) for _, folders, files in os.walk(target))
