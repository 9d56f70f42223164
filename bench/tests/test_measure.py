"""One run, measured: times, memory of all processes, servers apart, failures, runs that take too long; the wire."""

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from harness import measure
from harness.beside import Beside
from harness.wire import Wire, free_port

PYTHON = sys.executable
HERE = Path(__file__).resolve().parent.parent


def until_worked(pid):
    """A command that ends once a process has had a tenth of a second of the processor."""
    took = f"awk '{{print $14 + $15}}' /proc/{pid}/stat"
    return f"until=$(( $({took}) + 10 )); while [ $({took}) -lt $until ]; do sleep 0.05; done"


def busy(bytes_):
    """A process that has so many bytes, and works."""
    process = subprocess.Popen([PYTHON, "-c", f"x = b'1' * {bytes_}\nprint(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    return process


class Touching(unittest.TestCase):
    def touched(self, size, **memory):
        """How many bytes are touched where so many are asked for, and the kernel tells these numbers of KiB."""
        told = "".join(f"{name}: {kib} kB\n" for name, kib in {"MemTotal": 1 << 20, **memory}.items())
        with mock.patch.object(Path, "read_text", lambda _: told), mock.patch("mmap.mmap", side_effect=ValueError) as mapped:
            try:
                measure.touch(size)
            except ValueError:
                return mapped.call_args.args[1]
        return 0

    def test_no_memory_of_caches_is_used(self):
        self.assertEqual(self.touched(1 << 20, MemFree=1 << 19, MemAvailable=1 << 20), 1 << 20)
        self.assertEqual(self.touched(1 << 30, MemFree=1 << 10, MemAvailable=1 << 20), 7 << 17)
        self.assertEqual(self.touched(1 << 30, MemFree=0, MemAvailable=1 << 20), 0)


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        measure.adopt()

    def test_wall_and_processor_time(self):
        slept = measure.run("sleep 0.3")
        self.assertTrue(0.3 <= slept["wall"] < 3, slept)
        self.assertLess(slept["cpu"], 0.25)
        self.assertIsNone(slept["server_memory"])
        worked = measure.run(f"{PYTHON} -c 'for i in range(4_000_000): pass'")
        self.assertGreater(worked["cpu"], 0.03)

    def test_memory_is_that_of_all_processes_at_once(self):
        with tempfile.TemporaryDirectory() as folder:
            # Each waits for the other, and a while longer.
            hog = (f"{PYTHON} -c 'x = b\"1\" * 60_000_000; import os, sys, time; open(sys.argv[1], \"w\")\n"
                   "while not os.path.exists(sys.argv[2]): time.sleep(0.01)\ntime.sleep(1)'")
            figures = measure.run(f"{hog} {folder}/a {folder}/b & {hog} {folder}/b {folder}/a; wait")
        self.assertTrue(120e6 < figures["memory"] < 220e6, figures)

    def test_memory_that_is_taken_when_nobody_looks_is_seen(self):
        with mock.patch.object(measure, "FIRST_LOOK_SECONDS", 100):
            figures = measure.run(f"{PYTHON} -c 'x = b\"1\" * 200_000_000'")
        self.assertTrue(200e6 < figures["memory"] < 300e6, figures)

    def test_what_a_user_has_set_for_a_program_is_not_passed_on(self):
        with mock.patch.dict(os.environ, {"RESTIC_COMPRESSION": "off", "KEPT": "1"}):
            measure.run("test -z \"$RESTIC_COMPRESSION\" && test \"$KEPT$BORG_REPO\" = 1r", {"BORG_REPO": "r"})

    def test_a_failure_says_what_was_said_last(self):
        with self.assertRaises(measure.Failed) as caught:
            measure.run("echo first; echo last >&2; exit 7")
        self.assertEqual(caught.exception.status, 7)
        self.assertTrue(caught.exception.output.endswith("last\n"))
        measure.run("exit 7", fine=(0, 7))

    def test_what_takes_too_long_is_killed_with_all_below_it(self):
        with tempfile.TemporaryDirectory() as folder:
            pid, said = f"{folder}/pid", ""
            for limit in (0.5, 2, 8, 30):  # on a busy machine it takes a while until the shell has written
                start = time.monotonic()
                with self.assertRaises(measure.Overdue):
                    measure.run(f"setsid sleep 600 & echo $! > {pid}; sleep 600", limit=limit)
                self.assertLess(time.monotonic() - start, 90)
                if os.path.exists(pid) and (said := open(pid).read()):
                    break
            self.assertFalse(measure.alive(int(said)))

    def test_what_is_left_behind_is_found(self):
        measure.run("setsid sleep 50 > /dev/null 2>&1 &")
        left = [pid for pid in measure.below([os.getpid()]) - {os.getpid()} if measure.alive(pid)]
        self.assertEqual(len(left), 1)
        measure.end(left)
        self.assertFalse(measure.alive(left[0]))

    def test_who_does_not_go_when_asked_goes_by_force(self):
        deaf = subprocess.Popen([PYTHON, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"],
                                stdout=subprocess.PIPE)
        deaf.stdout.readline()
        deaf.stdout.close()
        measure.dismiss([deaf])
        self.assertIsNotNone(deaf.returncode)

    def test_who_is_told_to_end_clears_up_before(self):
        program = ("import sys, time\nfrom harness import measure\nmeasure.end_in_order()\n"
                   "try: print(flush=True); time.sleep(600)\nfinally: print('cleared up', flush=True)")
        for sign, ignored in ((signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGHUP, True)):
            before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
            try:
                process = subprocess.Popen([PYTHON, "-c", program], stdout=subprocess.PIPE, text=True, cwd=HERE, restore_signals=False)
            finally:
                signal.signal(signal.SIGHUP, before)
            process.stdout.readline()
            process.send_signal(sign)
            if ignored:
                with self.assertRaises(subprocess.TimeoutExpired):
                    process.wait(0.3)
                process.terminate()
            told = process.communicate(timeout=30)[0]
            self.assertEqual((told, process.returncode), ("cleared up\n", 128 + (signal.SIGTERM if ignored else sign)))

    def test_what_others_do_meanwhile_is_told(self):
        class Scripted(Beside):
            moments = iter([(100.0, 10.0, 5.0, 7.0, 1.0), (160.0, 12.0, 5.5, 17.0, 3.0)])

            def now(self):
                return next(self.moments)

        # Of sixty seconds the kernel had two, this process a half, those known ten, and the command thirty.
        self.assertEqual(Scripted(lambda: ()).since(30.0), (17.5, 2.0))
        # What is so on a machine that others use as well can't be foretold, but that it is told.
        busy, kernel, own, known, stolen = Beside(lambda: [os.getpid()]).before
        self.assertTrue(busy > own > 0 and known > 0 and busy >= kernel >= 0 and stolen >= 0)
        self.assertIsInstance(measure.run("true")["others"], float)

    def test_servers_are_measured_apart(self):
        server = busy(80_000_000)
        try:
            figures = measure.run(until_worked(server.pid), servers=[server.pid])
        finally:
            server.kill()
            server.wait()
        self.assertGreater(figures["server_memory"], 80e6)
        self.assertLess(figures["memory"], 40e6)
        self.assertGreater(figures["server_cpu"], 0.05)

    def test_a_daemon_of_the_client_counts_as_the_command(self):
        daemon = busy(80_000_000)
        try:
            before = measure.cpu_of(daemon.pid)
            figures = measure.run(until_worked(daemon.pid), clients=[daemon.pid])
            after = measure.cpu_of(daemon.pid)
        finally:
            daemon.kill()
            daemon.wait()
        self.assertGreater(figures["memory"], 80e6)
        self.assertGreater(figures["cpu"], 0.05)
        self.assertLess(figures["cpu"], after - before + 2)  # not what it took before
        self.assertIsNone(figures["server_cpu"])

    def test_an_agent_that_is_left_counts_as_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            agent = (f"{PYTHON} -c 'import os, time\nopen(\"{folder}/pid\", \"w\").write(str(os.getpid()))\n"
                     f"while time.process_time() < 0.5: pass\nopen(\"{folder}/did\", \"w\")\ntime.sleep(600)'")
            figures = measure.run(f"setsid {agent} > /dev/null 2>&1 & until [ -e {folder}/did ]; do sleep 0.05; done")
            pid = int(open(f"{folder}/pid").read())
            try:
                later = measure.run("true")
                last = measure.run(f"kill {pid}; while [ -e /proc/{pid}/fd/0 ]; do sleep 0.05; done")
            finally:
                measure.end([pid])
        self.assertGreater(figures["cpu"], 0.4)
        # What it did before counts no more: while it stays, and when it ends.
        self.assertLess(later["cpu"], 0.3)
        self.assertLess(last["cpu"], 0.3)


class Echo(threading.Thread):
    """A server that answers each line of a client, when it is complete, with three times as much."""

    def __init__(self):
        super().__init__(daemon=True)
        self.socket = socket.create_server(("127.0.0.1", free_port()))
        self.port = self.socket.getsockname()[1]
        self.callers = []
        self.start()

    def run(self):
        while True:
            try:
                connection, (_, port) = self.socket.accept()
                self.callers.append(port)
            except OSError:
                return
            with connection:
                line = b""
                while piece := connection.recv(65536):
                    line += piece
                    if line.endswith(b"\n"):
                        connection.sendall(line * 3)
                        line = b""


class TheWire(unittest.TestCase):
    def talk(self, port, sizes, address="127.0.0.1"):
        """Sends so many bytes at a time, waits for the answer to each; the seconds that it took."""
        with socket.create_connection((address, port)) as connection:
            start = time.monotonic()
            for size in sizes:
                connection.sendall(b"x" * (size - 1) + b"\n")
                have = 0
                while have < 3 * size:
                    have += len(connection.recv(65536))
            return time.monotonic() - start

    def setUp(self):
        self.echo = Echo()
        self.addCleanup(self.echo.socket.close)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def test_bytes_each_way_and_turns(self):
        with Wire(self.echo.port, f"{self.folder.name}/wire") as wire:
            before = wire.counts.get()
            self.talk(wire.port, [100, 200, 500_000])
            self.assertEqual(wire.since(before), {"up": 500_300, "down": 1_500_900, "turns": 3, "connections": 1})

    def test_a_server_that_asks_the_client(self):
        with Wire(None, f"{self.folder.name}/wire", to_client=self.echo.port) as wire:
            before = wire.counts.get()
            self.talk(wire.client_port, [100, 200])
            self.assertEqual(wire.since(before), {"up": 900, "down": 300, "turns": 2, "connections": 1})

    def test_both_ask_each_other_on_one_wire(self):
        other = Echo()
        self.addCleanup(other.socket.close)
        with Wire(self.echo.port, f"{self.folder.name}/wire", to_client=other.port, address="127.0.0.2") as wire:
            self.assertEqual(wire.port, self.echo.port)
            before = wire.counts.get()
            self.talk(wire.port, [100], "127.0.0.2")
            self.talk(wire.client_port, [1000])
            self.assertEqual(wire.since(before), {"up": 3100, "down": 1300, "turns": 2, "connections": 2})

    @unittest.skipIf(os.geteuid(), "needs root: the ports below 1024")
    def test_a_client_that_trusts_reserved_ports_only(self):
        with Wire(None, f"{self.folder.name}/wire", to_client=self.echo.port, reserved=True) as wire:
            for _ in range(3):
                self.talk(wire.client_port, [100])
            self.assertEqual(wire.counts.get()["connections"], 3)
        self.assertTrue(all(512 <= port < 1024 for port in self.echo.callers), self.echo.callers)
        self.assertEqual(len(self.echo.callers), 3)

    def test_latency_and_rate(self):
        with Wire(self.echo.port, f"{self.folder.name}/wire", rtt_ms=60) as wire:
            self.assertGreaterEqual(self.talk(wire.port, [10] * 5), 5 * 0.06)
        with Wire(self.echo.port, f"{self.folder.name}/wire", rate=1_000_000) as wire:
            self.assertGreaterEqual(self.talk(wire.port, [100_000]), 0.3)

    def test_the_rate_is_that_of_all_connections_together(self):
        others = [Echo() for _ in range(3)]
        for other in others:
            self.addCleanup(other.socket.close)
        targets = [self.echo.port, *(other.port for other in others)]
        wires = [Wire(port, f"{self.folder.name}/wire{port}", rate=1_000_000) for port in targets]
        # The first line has all four, as one route has many connections: an echo serves one at a time.
        routes = [route for wire in wires for route in wire.routes]
        wires[0].routes = routes
        with wires[0]:
            start = time.monotonic()
            talks = [threading.Thread(target=self.talk, args=(wire.port, [50_000])) for wire in wires]
            for talk in talks:
                talk.start()
            for talk in talks:
                talk.join()
            self.assertGreaterEqual(time.monotonic() - start, 4 * 0.15)

    def test_a_rate_for_each_way(self):
        took = []
        for rate in ((500_000, 0), (0, 500_000)):  # the answer is three times as long
            with Wire(self.echo.port, f"{self.folder.name}/wire", rate=rate) as wire:
                took.append(self.talk(wire.port, [200_000]))
        self.assertGreaterEqual(took[0], 0.35)
        self.assertGreaterEqual(took[1], 1.15)

    def test_who_says_little_does_not_wait_for_who_says_much(self):
        other = Echo()
        self.addCleanup(other.socket.close)
        wire, second = (Wire(port, f"{self.folder.name}/wire", rate=100_000) for port in (self.echo.port, other.port))
        wire.routes += second.routes
        with wire, socket.create_connection(("127.0.0.1", wire.port)) as busy:
            busy.sendall(b"x" * 500_000)  # five seconds of the line
            self.assertLess(self.talk(second.port, [10]), 3)

    def test_what_was_sent_before_the_end_arrives(self):
        with socket.create_server(("127.0.0.1", 0)) as server, \
                Wire(server.getsockname()[1], f"{self.folder.name}/wire", rtt_ms=200) as wire:
            client = socket.create_connection(("127.0.0.1", wire.port))
            there, _ = server.accept()
            with there:
                client.sendall(b"last words")
                while wire.counts.get()["up"] < 10:  # else the system itself throws them away
                    time.sleep(0.001)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()  # by a reset
                self.assertEqual(there.recv(100), b"last words")
