"""W3: source trees and build objects: crates and Go modules as their registries serve them, and Go's build cache after
compiling some packages with their sources' compiler. 437,100 entries, 4.7 GiB were to be at scale 1, of which what is
pinned has 155,623."""

import os
import subprocess

from ..machine import first_line
from .base import Workload, dated, files_below, pinned
from .registry import copy, crates, go_module
from .w6 import chance, copy_part

ENTRIES = 437_100


class W3(Workload):
    name = "W3"
    title = "Source trees and build objects"
    source = "crates by cargo vendor, Go modules by go mod download, objects of go build"
    needs = ("go", "cargo")

    def make(self, tree):
        cache, of = tree.parent.parent / "fetched", pinned("W3")
        wanted, have, used = self.count(ENTRIES), 0, []
        objects = tree / "objects"
        objects.mkdir()
        have += self.compile(objects, of["compile"][: max(1, round(len(of["compile"]) * self.scale))])
        for folder in sorted(crates(cache).iterdir(), key=lambda folder: chance(folder.name)):
            if have >= wanted // 2:
                break
            if folder.is_dir():
                have += copy(folder, tree / "crates" / folder.name)
                used.append(folder.name)
        for module, version in of["modules"]:
            if have >= 0.97 * wanted:
                break
            source = go_module(cache, module, version)
            target = tree / "go" / f"{module.replace('/', '-')}@{version}"
            size = 1 + sum(len(folders) + len(files) for _, folders, files in os.walk(source))
            copy_part(source, target, (wanted - have) / size)
            have += sum(len(folders) + len(files) for _, folders, files in os.walk(target))
            used.append(f"{module}@{version}")
        for number, path in enumerate(files_below(tree)):
            dated(path, self.random("time", number))
        return {"from": used, "wanted": wanted, "compiler": first_line("go version")}

    def compile(self, objects, packages):
        """Compiles packages of Go's own library; the entries that the build cache then has."""
        env = {**os.environ, "GOCACHE": str(objects / "go-build"), "GOFLAGS": "-trimpath", "GOTELEMETRY": "off"}
        subprocess.run(["go", "build", *packages], env=env, check=True, cwd=objects, capture_output=True)
        return sum(len(folders) + len(files) for _, folders, files in os.walk(objects))


WORKLOADS = [W3]
