"""Any tree of this machine: `bench/run tree --tree PATH`. Backed up, backed up again unchanged, restored."""

from pathlib import Path

from ..weigh import weigh
from .base import Workload


class Tree(Workload):
    name = "tree"
    title = "One tree of this machine"

    def data(self, folder):
        if not self.given:
            raise OSError("the workload 'tree' needs --tree PATH")
        tree = Path(self.given).resolve(strict=True)
        self.source = "a folder of this machine"
        return tree, weigh([tree])


WORKLOADS = [Tree]
