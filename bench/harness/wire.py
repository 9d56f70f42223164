"""A wire between a client and a server: a relay that counts bytes each way and turns, and makes the far side far.

    python3 -m harness.wire FILE RTT_MS RATE[,RATE_DOWN] LISTEN/TARGET/up|down[-reserved]...

Each of the last is a route, of two addresses with their ports: `up` if it is the client who connects, `down` if the server does;
`reserved`: who is called trusts none but ports below 1024.

Latency and rate are made here because not every kernel has netem. Each piece leaves half a round trip after it came, and no
sooner than the rate (bytes a second, 0: no limit) lets it. A way's rate is that of all connections together, who take turns
piece by piece: who opens many gets no more of the line. A turn is a burst from the client after one from the server, on one
connection: what waits for an answer before it goes on. Counts lie in FILE, mapped, so that they can be read at any moment. It is
a process of its own: the harness's looks at memory would slow it down.

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

from .measure import dismiss

FIELDS = ("up", "down", "turns", "connections", "ready")
LAYOUT = struct.Struct(f"<{len(FIELDS)}Q")
# What is passed on at once: so much, or what the rate lets through in so many seconds, but not less than a packet.
PIECE_BYTES, PIECE_SECONDS, PACKET_BYTES = 65536, 0.01, 1500
# Seconds of traffic that wait in the line itself; what more comes is left with its sender, and so many seconds of it in the
# system's buffers before the relay, as a modem would hold it.
AHEAD_SECONDS, HELD_SECONDS, HELD_BYTES = 0.03, 0.5, 1 << 16
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


def both_ways(rate):
    """The rates to the server and from it, of one for both or of a pair."""
    return tuple(rate) if isinstance(rate, (tuple, list)) else (rate, rate)


class Link:
    """One way of the line, for all connections."""

    def __init__(self, delay, rate):
        self.delay, self.rate, self.free, self.turn = delay, rate, 0.0, asyncio.Lock()
        self.piece = int(min(PIECE_BYTES, max(PACKET_BYTES, rate * PIECE_SECONDS))) if rate else PIECE_BYTES

    async def due(self, size):
        """Takes the line for so many bytes, when it is their turn; when they are at its other end."""
        loop = asyncio.get_running_loop()
        if not self.rate:
            return loop.time() + self.delay
        async with self.turn:
            await asyncio.sleep(max(0.0, self.free - AHEAD_SECONDS - loop.time()))
            self.free = max(self.free, loop.time()) + size / self.rate
            return self.free + self.delay

    def narrow(self, sock):
        """Keeps a socket from taking in far more than the line lets through."""
        if self.rate:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, int(max(HELD_BYTES, self.rate * HELD_SECONDS)))


async def pass_on(reader, sock, writer, link, seen):
    """One way of one connection. What was sent before the connection broke still arrives. `sock` is the reader's: what comes is acknowledged at once, or who sends in
    small pieces and waits for that (burp) stands still for 40 ms each time, which is the relay's and no line's."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue(256)

    async def send():
        while True:
            due, piece = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            if piece is None:
                writer.transport.abort()
                return
            if not piece:
                writer.write_eof()
                return
            writer.write(piece)
            await writer.drain()

    task, end = asyncio.create_task(send()), b""
    try:
        try:
            while piece := await reader.read(link.piece):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                seen(len(piece))
                await queue.put((await link.due(len(piece)), piece))
        except OSError:
            end = None
        await queue.put((loop.time() + link.delay, end))
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


async def serve(reader, writer, target, forth, links, counts):
    """One connection; `forth`: whether who connects is the client."""
    try:
        there_reader, there_writer = await reach(*target)
    except OSError:
        writer.transport.abort()
        return
    (there_link, back_link) = links if forth else reversed(links)
    back_link.narrow(there_writer.get_extra_info("socket"))
    counts.add(connections=1)
    last = ["down"]

    def up(size):
        counts.add(up=size, turns=last[0] == "down")
        last[0] = "up"

    def down(size):
        counts.add(down=size)
        last[0] = "down"

    there, back = (up, down) if forth else (down, up)
    sock, there_sock = writer.get_extra_info("socket"), there_writer.get_extra_info("socket")
    await asyncio.gather(pass_on(reader, sock, there_writer, there_link, there),
                         pass_on(there_reader, there_sock, writer, back_link, back), return_exceptions=True)
    for side in (writer, there_writer):
        side.close()


async def relay(routes, delay, rate, counts):
    """Serves addresses of this machine until it is ended. A route: where to listen, where to go and whether from a reserved port,
    whether the client connects."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, os._exit, 0)
    links = [Link(delay, way) for way in both_ways(rate)]
    for listen, target, forth in routes:
        def taken(reader, writer, target=target, forth=forth):
            return serve(reader, writer, target, forth, links, counts)
        server = await asyncio.start_server(taken, *listen, backlog=1024)
        for sock in server.sockets:
            links[0 if forth else 1].narrow(sock)
    counts.add(ready=1)
    await asyncio.get_running_loop().create_future()


GIVEN = set()


def free_port():
    """A port that nobody listens on just now; each but once, since whoever asks for it listens a moment later."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        if port not in GIVEN:
            GIVEN.add(port)
            return port


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
    server's own port number. `reserved`: the client answers ports below 1024 only. `rate`: one for both ways, or two, to the server
    and from it. `pid` is a helper's: not to be counted as the client's."""

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
            [sys.executable, "-m", "harness.wire", str(self.file), str(self.rtt_ms), ",".join(map(str, both_ways(self.rate))), *self.routes],
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
        dismiss([self.process])
        self.counts.map.close()

    def since(self, before):
        """What has passed since some earlier counts."""
        return {key: value - before[key] for key, value in self.counts.get().items() if key != "ready"}


def main():
    file, rtt_ms, rate, *routes = sys.argv[1:]
    routes = [(listen.rsplit(":", 1), (*target.rsplit(":", 1), way.endswith("reserved")), way.startswith("up"))
              for listen, target, way in (route.split("/") for route in routes)]
    asyncio.run(relay(routes, float(rtt_ms) / 2000, [float(way) for way in rate.split(",")], Counts(file)))


if __name__ == "__main__":
    main()
