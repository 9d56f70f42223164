"""A wire between a client and a server: a relay that counts bytes each way and turns, and makes the far side far.

    python3 -m harness.wire FILE RTT_MS RATE LISTEN/TARGET/up|down[-reserved]...

Each of the last is a route, of two addresses with their ports: `up` if it is the client who connects, `down` if the server does;
`reserved`: who is called trusts none but ports below 1024.

Latency and rate are made here because not every kernel has netem. Each piece leaves half a round trip after it came, and no
sooner than the rate (bytes a second each way, 0: no limit) lets it. A turn is a burst from the client after one from the
server, on one connection: what waits for an answer before it goes on. Counts lie in FILE, mapped, so that they can be read
at any moment. It is a process of its own: the harness's looks at memory would slow it down.

Tools that reach their server by a command instead of a port (ssh) get the relay by that server's port.
"""

import asyncio
import errno
import mmap
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

FIELDS = ("up", "down", "turns", "connections", "ready")
LAYOUT = struct.Struct(f"<{len(FIELDS)}Q")
PIECE_BYTES = 65536
LOOPBACK = "127.0.0.1"
RESERVED = range(512, 1024)
HERE = Path(__file__).resolve().parent.parent


class Counts:
    """The counts of a relay, in a file that both sides map."""

    def __init__(self, path, make=False):
        if make:
            Path(path).write_bytes(bytes(LAYOUT.size))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), LAYOUT.size)

    def get(self):
        return dict(zip(FIELDS, LAYOUT.unpack(self.map[:])))

    def add(self, **more):
        now = self.get()
        self.map[:] = LAYOUT.pack(*(now[key] + more.get(key, 0) for key in FIELDS))


async def pass_on(reader, writer, delay, rate, seen):
    """One way of one connection."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(256)

    async def send():
        free = 0.0  # when the link is free again
        while True:
            came, piece = await queue.get()
            leaves = came
            if rate and piece:
                leaves = free = max(free, came) + len(piece) / rate
            await asyncio.sleep(max(0.0, leaves + delay - loop.time()))
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()

    task = asyncio.create_task(send())
    try:
        while piece := await reader.read(PIECE_BYTES):
            seen(len(piece))
            await queue.put((loop.time(), piece))
        await queue.put((loop.time(), b""))
        await task
    except OSError:
        writer.transport.abort()
    finally:
        task.cancel()


async def reach(host, port, reserved):
    """A connection to an address, from a reserved port if it must be one."""
    if not reserved:
        return await asyncio.open_connection(host, port)
    for own in random.sample(RESERVED, len(RESERVED)):
        try:
            return await asyncio.open_connection(host, port, local_addr=(LOOPBACK, own))
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                raise
    raise OSError("no reserved port is free")


async def serve(reader, writer, target, forth, delay, rate, counts):
    """One connection; `forth`: whether who connects is the client."""
    try:
        there_reader, there_writer = await reach(*target)
    except OSError:
        writer.transport.abort()
        return
    counts.add(connections=1)
    last = ["down"]

    def up(size):
        counts.add(up=size, turns=last[0] == "down")
        last[0] = "up"

    def down(size):
        counts.add(down=size)
        last[0] = "down"

    there, back = (up, down) if forth else (down, up)
    await asyncio.gather(pass_on(reader, there_writer, delay, rate, there),
                         pass_on(there_reader, writer, delay, rate, back), return_exceptions=True)
    for side in (writer, there_writer):
        side.close()


async def relay(routes, delay, rate, counts):
    """Serves addresses of this machine until it is ended. A route: where to listen, where to go and whether from a reserved port,
    whether the client connects."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    for listen, target, forth in routes:
        def taken(reader, writer, target=target, forth=forth):
            return serve(reader, writer, target, forth, delay, rate, counts)
        await asyncio.start_server(taken, *listen, backlog=1024)
    counts.add(ready=1)
    await asyncio.get_running_loop().create_future()


def free_port():
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port, patience=10.0):
    """Waits until somebody listens on a port; False if nobody comes to."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return True
        time.sleep(0.02)
    return False


class Wire:
    """A relay before a port of the server's (a client finds it at `port`), one of the client's (`to_client`: the server finds it at
    `client_port`), or both, while it is entered. `address`: where it listens for the client; at another than 127.0.0.1 by the
    server's own port number. `reserved`: the client answers ports below 1024 only. `pid` is a helper's: not to be counted as the client's."""

    def __init__(self, port, file, rtt_ms=0.0, rate=0, to_client=None, address=LOOPBACK, reserved=False):
        self.file, self.rtt_ms, self.rate, self.address, self.routes = Path(file), rtt_ms, rate, address, []
        if port is not None:
            self.port = free_port() if address == LOOPBACK else port
            self.routes.append(f"{address}:{self.port}/{LOOPBACK}:{port}/up")
        if to_client is not None:
            self.client_port = free_port()
            self.routes.append(f"{LOOPBACK}:{self.client_port}/{LOOPBACK}:{to_client}/down{'-reserved' * reserved}")

    def __enter__(self):
        self.counts = Counts(self.file, make=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.wire", str(self.file), str(self.rtt_ms), str(self.rate), *self.routes], cwd=HERE)
        self.pid = self.process.pid
        until = time.monotonic() + 10
        while not self.counts.get()["ready"]:
            if time.monotonic() > until:
                self.__exit__()
                raise OSError("the relay does not come up")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.counts.map.close()

    def since(self, before):
        """What has passed since some earlier counts."""
        return {key: value - before[key] for key, value in self.counts.get().items() if key != "ready"}


def main():
    file, rtt_ms, rate, *routes = sys.argv[1:]
    routes = [(listen.rsplit(":", 1), (*target.rsplit(":", 1), way.endswith("reserved")), way.startswith("up"))
              for listen, target, way in (route.split("/") for route in routes)]
    asyncio.run(relay(routes, float(rtt_ms) / 2000, float(rate), Counts(file)))


if __name__ == "__main__":
    main()
