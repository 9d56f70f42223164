"""Builds of Drumlin, each with one knob turned.

The sources are copied, so that nothing is turned where somebody works, and built without link-time optimisation, the defaults
too: that takes a third of the time, and all are compared with their like.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from .knobs import ROOT

# What a build depends on, below the project's root.
PARTS = ("Cargo.toml", "Cargo.lock", "crates")
PACKAGE = "drumlin"
SETTINGS = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_INCREMENTAL": "true"}


class Builds:
    """Builds of one state of the sources, below a folder; those that are there are not made again."""

    def __init__(self, folder, root=ROOT):
        self.folder, self.root = Path(folder), Path(root)
        self.sources = self.folder / "sources"

    def copy(self):
        """Takes the sources as they are now; what differs from the last copy is built anew, and nothing else."""
        self.sources.mkdir(parents=True, exist_ok=True)
        there = set()
        for path in self.tracked():
            there.add(path)
            source, copy = self.root / path, self.sources / path
            if not copy.is_file() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
        for copy in self.sources.rglob("*"):
            if copy.is_file() and str(copy.relative_to(self.sources)) not in there:
                copy.unlink()
        digest = hashlib.sha256()
        for path in sorted(there):
            digest.update(f"{path}\0".encode() + (self.sources / path).read_bytes() + b"\0")
        self.state = digest.hexdigest()[:12]

    def tracked(self):
        """The files that are built, by the version control, new ones included."""
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *PARTS], cwd=self.root, check=True, capture_output=True)
        return [path for path in listed.stdout.decode().split("\0") if path and (self.root / path).is_file()]

    def make(self, knob=None, value=None):
        """The program with a knob turned, or with none."""
        name = re.sub(r"\W+", "-", f"{knob.name} {value}").strip("-") if knob else "default"
        program = self.folder / "programs" / f"{self.state}-{name}"
        if program.is_file():
            return program
        if not knob:
            return self.build(program)
        path = self.sources / knob.file
        before = path.read_text()
        try:
            path.write_text(knob.turned(before, value))
            return self.build(program)
        finally:
            path.write_text(before)

    def build(self, program):
        target = self.folder / "target"
        subprocess.run(["cargo", "build", "--release", "--quiet", "--package", PACKAGE, "--bin", "drumlin"], cwd=self.sources, check=True,
                       env={**os.environ, **SETTINGS, "CARGO_TARGET_DIR": str(target)})
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(target / "release" / "drumlin", program)
        return program
