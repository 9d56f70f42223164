"""The knobs: what they are called, where they stand in the sources, and which values are tried.

A knob that has moved or changed is an error, not a knob less: a test asks for all of them.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FILE = Path(__file__).with_name("knobs.toml")
# A workload of this name's end has its repository on another machine.
FAR = "-far"


class Moved(Exception):
    """A knob isn't where the list says."""


@dataclass(frozen=True)
class Knob:
    """A constant of the sources. `line` is the text that sets it, {} in it the value; `values` are those that are tried besides
    `default`; `runs` the workloads that it can matter to; `touches` what it does: `backup`, `restore`, or None for both."""

    name: str
    file: str
    line: str
    default: str
    values: tuple
    runs: tuple
    touches: str | None = None

    def text(self, value):
        return self.line.replace("{}", value)

    def turned(self, source, value):
        """A file's text with another value in it."""
        there = source.count(self.text(self.default))
        if there != 1:
            raise Moved(f"{self.name}: “{self.text(self.default)}” is {there} times in {self.file}, not once; mend {FILE.name}")
        return source.replace(self.text(self.default), self.text(value))


def everything():
    """All knobs, by name."""
    found = [Knob(k["name"], k["file"], k["line"], k["default"], tuple(k["values"]), tuple(k["runs"]), k.get("touches")) for k in tomllib.loads(FILE.read_text())["knob"]]
    if len({knob.name for knob in found}) != len(found):
        raise Moved(f"{FILE.name}: two knobs have one name")
    return {knob.name: knob for knob in found}


def check(root=ROOT):
    """Raises what is wrong with any of them."""
    for knob in everything().values():
        knob.turned((Path(root) / knob.file).read_text(), knob.default)
        if knob.default in knob.values or not knob.values or not knob.runs:
            raise Moved(f"{knob.name}: nothing else is tried, or nowhere")
        if knob.touches not in (None, "backup", "restore"):
            raise Moved(f"{knob.name}: “{knob.touches}” is nothing that a knob could touch")
