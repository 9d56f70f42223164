"""How a run is done."""

from pathlib import Path


class Options:
    """How a run is done: everything but the workload and the tools. Times in seconds."""

    def __init__(self, work, repeat=3, cold=False, loop=True, floor=60.0, ceiling=7200.0, settle=2.0, check="first", count_syncs=True,
                 rtt_ms=0.0, rate=0, far=False, near=0.0):
        self.work, self.repeat, self.cold, self.loop = Path(work), repeat, cold, loop
        self.floor, self.ceiling, self.settle, self.check, self.count_syncs = floor, ceiling, settle, check, count_syncs
        # Of the wire between a client and a server, where a tool has one: milliseconds, bytes a second (0: no limit), for both
        # ways or a pair, to the server and from it. `far`: every tool's repository is at the end of such a wire.
        self.rtt_ms, self.rate, self.far = rtt_ms, rate, far
        # How many times the best of the first round (of those that do as much) a tool may take, in the step in which it is nearest to that, to do the others, too; 0: any.
        self.near = near
