"""The tools that are compared: each an adapter, each adapter a file; a row of the tables is a class."""

import importlib
import pkgutil

from .base import Place, Tool


def everything():
    """All rows by name, in the order of the tables: Drumlin, what only copies, then the others by name."""
    rows = []
    for module in pkgutil.iter_modules(__path__):
        if module.name != "base":
            rows += importlib.import_module(f"{__name__}.{module.name}").ROWS
    return {row.name: row for row in sorted(rows, key=lambda row: (row.order, row.name))}


def choose(names=None, stream=False, without=(), far=False):
    """(rows to run, names that can't be with the reason): by default all whose programs are here, else all that are asked for;
    `stream`: only those that save a stream; `far`: only those that can keep their repository on another machine; `without`:
    none of these. KeyError if a name is nobody's."""
    rows = everything()
    unknown = [name for name in (*(names or ()), *without) if name not in rows]
    if unknown:
        raise KeyError(f"no tool is called {', '.join(unknown)}; there are: {', '.join(rows)}")
    rows = {name: rows[name] for name in names or rows if name not in without}
    chosen, missing = [], []
    for name, row in rows.items():
        if stream and not row.streams or not stream and not row.trees:
            if names:
                missing.append((name, "it can't save a stream" if stream else "it saves databases only"))
        elif far and not row.reaches():
            if names:
                missing.append((name, "it keeps its repository on the same machine"))
        elif row.missing():
            missing.append((name, f"{', '.join(row.missing())}: not on the PATH"))
        elif names or row.default:
            chosen.append(row)
    return chosen, missing


__all__ = ["Place", "Tool", "choose", "everything"]
