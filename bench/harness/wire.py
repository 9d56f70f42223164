"""A wire between a client and a server: a relay that counts bytes each way and turns, and makes the far side far.

    python3 -m harness.wire PORT HOST:PORT RTT_MS RATE FILE

Latency and rate are made here because not every kernel has netem. Each piece leaves half a round trip after it came, and no
sooner than the rate (bytes a second each way, 0: no limit) lets it. A turn is a burst from the client after one from the
server, on one connection: what waits for an answer before it goes on. Counts lie in FILE, mapped, so that they can be read
at any moment. It is a process of its own: the harness's looks at memory would slow it down.

Tools that reach their server by a command instead of a port (ssh) get the relay by that server's port.
"""

import asyncio
import mmap
import os
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


async def relay(port, host, far_port, delay, rate, counts):
    """Serves a port of this machine until it is ended."""

    async def serve(reader, writer):
        try:
            there_reader, there_writer = await asyncio.open_connection(host, far_port)
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

        await asyncio.gather(pass_on(reader, there_writer, delay, rate, up),
                             pass_on(there_reader, writer, delay, rate, down), return_exceptions=True)
        for side in (writer, there_writer):
            side.close()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    async with await asyncio.start_server(serve, "127.0.0.1", port, backlog=1024) as server:
        counts.add(ready=1)
        await server.serve_forever()


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
    """A relay before a port, while it is entered. `pid` is a helper's: not to be counted as the client's."""

    def __init__(self, port, file, rtt_ms=0.0, rate=0):
        self.target, self.file, self.rtt_ms, self.rate, self.port = port, Path(file), rtt_ms, rate, free_port()

    def __enter__(self):
        self.counts = Counts(self.file, make=True)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.wire", str(self.port), f"127.0.0.1:{self.target}", str(self.rtt_ms), str(self.rate), str(self.file)],
            cwd=HERE)
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
    port, target, rtt_ms, rate, file = sys.argv[1:]
    host, far_port = target.rsplit(":", 1)
    asyncio.run(relay(int(port), host, int(far_port), float(rtt_ms) / 2000, float(rate), Counts(file)))


if __name__ == "__main__":
    main()
