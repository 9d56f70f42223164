"""W4: Ceph's logs. 24 files, 8 GiB of plain text at scale 1: similar lines, hardly two alike; then one of them grows.

Lines have the shapes that Ceph's daemons log at their usual levels: a time to the microsecond or finer, a thread, a level, a
subsystem, numbers that creep on and ids that jump. Shapes come again in the bursts in which daemons write them.
"""

import os
import time

from .base import EPOCH, Step, Workload, in_parallel

FILES, BYTES = 24, 8 << 30
LINES = 200  # written at once
STATES = ("active+clean", "active+undersized+degraded", "peering", "active+recovering", "active+clean+scrubbing+deep")
OPS = ("osd_op", "osd_repop", "osd_repop_reply", "pg_trim", "osd_sub_op")


def shapes(rng):
    """The lines of one burst, each as a function of the moment's numbers."""
    pool, osd, epoch = rng.randrange(1, 30), rng.randrange(60), rng.randrange(50_000, 51_000)
    pg = f"{pool}.{rng.randrange(4096):x}"
    client = f"client.{rng.randrange(10**5, 10**7)}"
    obj = f"rbd_data.{rng.getrandbits(48):012x}"
    thread = f"7f{rng.getrandbits(36):09x}0"
    return thread, [
        lambda n, r: f" 1 osd.{osd} pg_epoch: {epoch} pg[{pg}( v {epoch}'{n} (0'0,{epoch}'{n}] local-lis/les={epoch - 3}/{epoch - 2} n={r % 9000} ec=231/231 "
                     f"lis/c={epoch - 3}/{epoch - 3} les/c/f={epoch - 2}/{epoch - 2}/0 sis={epoch - 3}) [{osd},{r % 60},{r % 59}] r=0 lpr={epoch - 3} crt={epoch}'{n} mlcod {epoch}'{n - 1} {STATES[r % 5]}] state<Start>: transitioning to Primary",
        lambda n, r: f"10 osd.{osd} {epoch} dequeue_op 0x{r:x} prio 63 cost {r % 4096 * 512} latency 0.{r % 10**6:06} {OPS[r % 5]}({client}.0:{n} {pg} {pg}:{r:08x}:::{obj}.{n % 65536:016x}:head [write {r % 1024 * 4096}~4096] snapc 0=[] ondisk+write+known_if_redirected e{epoch}) v8 pg pg[{pg}]",
        lambda n, r: f" 0 log_channel(cluster) log [DBG] : {pg} {'deep-scrub' if r % 2 else 'scrub'} {'starts' if n % 2 else 'ok'}",
        lambda n, r: f" 4 rocksdb: [db/compaction/compaction_job.cc:1332] [default] [JOB {n}] Generated table #{n + 7}: {r % 90000} keys, {r} bytes",
        lambda n, r: f" 5 osd.{osd} {epoch} heartbeat osd_stat(store_statfs(0x{r:x}/0x40000000/0x{n * 4096:x}, data 0x{r // 3:x}/0x{r:x}, compress 0x0/0x0/0x0, omap 0x{n:x}, meta 0x{r % 2**30:x}), peers [{osd - 1},{osd + 1}] op hist [])",
        lambda n, r: f" 1 -- [v2:10.0.{osd}.11:6802/{r % 99999},v1:10.0.{osd}.11:6803/{r % 99999}] --> {client.replace('client', '10.0')}.7:0/{r} -- osd_op_reply({n} {obj}.{n % 65536:016x} [write {r % 1024 * 4096}~4096] v{epoch}'{n} uv{n} ondisk = 0) v8 -- 0x{r * 4096:x} con 0x{r // 7:x}",
    ]


def stamp(nanos):
    at = time.gmtime(nanos // 10**9)
    return f"{at.tm_year}-{at.tm_mon:02}-{at.tm_mday:02}T{at.tm_hour:02}:{at.tm_min:02}:{at.tm_sec:02}.{nanos % 10**9 // 1000:06}+0000"


def fill(job):
    """Writes one file's lines, up to a size; behind what is there already."""
    workload, path, number, size, part = job
    rng = workload.random("log", number, part)
    clock = (EPOCH + number * 86400 + part * 43200) * 10**9
    count = rng.randrange(10**6, 10**7)
    with open(path, "ab") as file:
        while size > 0:
            thread, burst = shapes(rng)
            lines = []
            for _ in range(LINES):
                clock += rng.randrange(10**3, 4 * 10**6)
                count += 1
                lines.append(f"{stamp(clock)} {thread} {rng.choice(burst)(count, rng.getrandbits(32))}\n")
            piece = "".join(lines).encode()[:size]
            file.write(piece)
            size -= len(piece)
    when = EPOCH + (number + 1) * 86400 + part * 43200  # a log that has grown says so
    os.utime(path, (when, when))
    return 1


class W4(Workload):
    name = "W4"
    title = "Ceph's logs"
    source = "generated from a seed: lines in the shapes of Ceph's daemons"

    def steps(self):
        return [Step("first"), Step("no change"), Step("a log grows", self.grow)]

    def path(self, tree, number):
        return tree / f"ceph-osd.{number % 8}.log.{number // 8}"

    def make(self, tree):
        size = int(BYTES * self.scale) // FILES
        in_parallel(fill, ((self, self.path(tree, number), number, size, 0) for number in range(FILES)))

    def grow(self, tree, rng):
        """The newest log is a quarter longer: 1 % of all."""
        fill((self, self.path(tree, FILES - 1), FILES - 1, int(BYTES * self.scale) // FILES // 4, 1))


WORKLOADS = [W4]
