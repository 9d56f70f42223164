"""The workloads: what is saved, in which steps. Each a file; data come from a seed and a scale, or from registries with
their versions pinned in `pinned.toml`."""

import importlib
import pkgutil

from .base import Step, Workload


def everything():
    """All workloads by name."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        for workload in getattr(importlib.import_module(f"{__name__}.{module.name}"), "WORKLOADS", []):
            found[workload.name] = workload
    return dict(sorted(found.items()))


__all__ = ["Step", "Workload", "everything"]
