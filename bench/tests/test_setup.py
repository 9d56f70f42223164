"""bench/setup, with package clients that note how they are called, and refuse some."""

import os
import stat
import subprocess
import tempfile
import unittest
from pathlib import Path

SETUP = Path(__file__).resolve().parent.parent / "setup"
# By their names: what each does besides noting its call.
CLIENTS = {
    "id": "echo ${USER_ID:-0}",
    "systemctl": "",
    "apt-get": 'case " $* " in *" $REFUSED "*) echo "E: Unable to locate package $REFUSED" >&2; echo >&2; exit 100 ;; esac; [ -e "$BENCH_POLICY" ] || exit 9',
    "python3": """mkdir -p "$3/bin"; printf '#!/bin/sh\\n' | tee "$3/bin/pip" > "$3/bin/borg"; chmod 755 "$3/bin/pip" "$3/bin/borg\"""",
    "cargo": 'case "$*" in vendor*) mkdir -p vendor/obnam ;; *bupstash) echo "error: no libsodium" >&2; exit 101 ;; esac',
    "go": "",
    "kopia": "",
}


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "clients").mkdir()
        for name, does in CLIENTS.items():
            path = self.folder / "clients" / name
            path.write_text(f'#!/bin/bash\necho "{name} $*" >> "$CALLS"\n{does}\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run_it(self, *words, **more):
        env = {"PATH": f"{self.folder}/clients:/usr/bin:/bin", "HOME": str(self.folder), "CALLS": str(self.folder / "calls"), "REFUSED": "none",
               "BENCH_PREFIX": str(self.folder / "prefix"), "BENCH_POLICY": str(self.folder / "policy"), **more}
        done = subprocess.run([SETUP, *words], env=env, capture_output=True, text=True, timeout=60, check=False)
        calls = self.folder / "calls"
        return done, calls.read_text().splitlines() if calls.exists() else []

    def test_what_can_not_be_had_is_told_with_its_reason(self):
        done, calls = self.run_it(REFUSED="casync")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("\nnot to be had:\n  casync: E: Unable to locate package casync\n  bupstash: error: no libsodium\n", done.stdout)
        installed, = [line for line in done.stdout.splitlines() if line.startswith("installed: ")]
        for name in ("restic", "borg 1.4", "borg 2 beta", "rustic", "obnam", "kopia, there already"):
            self.assertIn(name, installed)
        self.assertNotIn("casync", installed)
        self.assertIn("cargo update --package traitobject --precise 0.1.1", calls)
        self.assertFalse([call for call in calls if "kopia/kopia" in call or "debootstrap" in call])

    def test_nothing_is_compiled_unless_it_may_be(self):
        done, calls = self.run_it("--no-build")
        self.assertEqual((done.returncode, [call for call in calls if call.startswith(("cargo", "go "))]), (0, []), done.stdout)

    def test_what_workloads_need_comes_too(self):
        _, calls = self.run_it("--no-build", "--workloads")
        self.assertTrue([call for call in calls if call.endswith(" debootstrap")])

    def test_no_daemon_starts_meanwhile_and_nothing_stays_of_that(self):
        done, _ = self.run_it("--no-build")  # its apt-get fails where no policy is
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertFalse((self.folder / "policy").exists())
        (self.folder / "policy").write_text("of the machine's own")
        self.run_it("--no-build")
        self.assertEqual((self.folder / "policy").read_text(), "of the machine's own")

    def test_who_may_not_install_is_told(self):
        done, calls = self.run_it(USER_ID="1000")
        self.assertEqual((done.returncode, calls), (1, ["id -u"]))
        self.assertIn("as root", done.stderr)
        done, calls = self.run_it("--help")
        self.assertEqual((done.returncode, "bench/setup [--no-build] [--workloads]" in done.stdout), (2, True))


if __name__ == "__main__":
    unittest.main()
