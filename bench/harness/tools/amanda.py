"""Amanda: the server asks the client for archives of GNU tar, gzipped there, and keeps them on virtual tapes. It does not seal by
itself, hence a second row. Needs root.

All its places are fixed when it is compiled. So its processes live in a namespace of mounts of their own, in which those
places are folders of ours; they are the user's that the package made for it.
"""

import os
import pwd
import subprocess

from ..machine import first_line
from ..measure import dismiss
from ..wire import Wire, free_port, listens
from .base import Tool

SETTINGS = """\
org "bench"
mailto ""
dumpuser "backup"
dumpcycle 30 days
runspercycle 30
tapecycle 100
infofile "/var/lib/amanda/info"
logdir "/var/lib/amanda/log"
indexdir "/var/lib/amanda/index"
tapelist "/var/lib/amanda/tapelist"
labelstr "^bench-[0-9]*$"
autolabel "bench-%%%" any
tapetype folder
tpchanger "tapes"
define changer tapes {{
  tpchanger "chg-disk:/var/lib/amanda/tapes"
  property "num-slot" "100"
  property "auto-create-slot" "yes"
}}
define tapetype folder {{
  length 100 tbytes
}}
define application-tool tar {{
  plugin "amgtar"
}}
define dumptype tree {{
  auth "bsdtcp"
  client-port "{port}"
  program "APPLICATION"
  application "tar"
  holdingdisk never
  maxpromoteday 0
  {seal}
}}
"""
CLIENT = "127.0.0.1:{port} stream tcp nowait backup /usr/lib/amanda/amandad amandad -auth=bsdtcp amdump\n"
# A command as a user, in a namespace where Amanda's places are ours. /tmp comes last, for ours may lie there.
INSIDE = """\
#!/bin/bash
set -e
user=$1
shift
mount --bind {home}/etc /etc/amanda
mount --bind {home}/debug /var/log/amanda
mount --bind {home}/user {user_home}
mount --bind {home}/lib /var/lib/amanda
mount --bind {repo} /var/lib/amanda/tapes
mount --bind {source} /var/lib/amanda/tree
mount --bind {home}/tmp /tmp
unset TMPDIR
cd /
[ "$user" = root ] || exec setpriv --reuid "$user" --regid "$user" --init-groups -- "$@"
exec "$@"
"""
# What Amanda brings for that, amcrypt-ossl, fails: openssl 3 warns about how it makes its key, and a warning is an error here.
SEAL = '#!/bin/sh\nexec openssl enc "$@" -aes-256-ctr -pbkdf2 -pass file:/etc/amanda/passphrase\n'
# The dumps that a step is made of: of all up to it, the last of each level that is below the levels of those after it.
CHAIN = """\
tac | awk '{ if (least == "" || $5 < least) { print $1 " " $2; least = $5 } }' | tac"""
USER = "backup"


class Amanda(Tool):
    name, program = "amanda", "amdump"
    needs = ("amfetchdump", "amadmin", "inetd", "unshare", "setpriv", "tar")
    compresses = True
    pulls = ("steps",)
    note = "a first dump, then incremental ones; gzip on the client; a restore runs on the server, by a pipe"
    seal = ""
    daemon = relay = None

    @classmethod
    def version(cls):
        # Asked itself, it makes folders in its fixed places.
        return first_line("dpkg-query -W -f='amanda ${Version}' amanda-common | sed 's/ [0-9]*:/ /'")

    def start(self):
        if os.geteuid():
            raise OSError("amanda can be set up by root only")
        home, repo, port, user = self.place.home, self.place.repo, free_port(), pwd.getpwnam(USER)
        for folder in ("etc/bench", "debug", "tmp", "user", "lib/gnutar-lists", "lib/tapes", "lib/tree", "lib/log"):
            (home / folder).mkdir(parents=True)
        repo.mkdir()
        self.relay = Wire(None, home / "wire", self.place.rtt_ms, self.place.rate, to_client=port, reserved=True).__enter__()
        for path, text in {
            "etc/bench/amanda.conf": SETTINGS.format(port=self.relay.client_port, seal=self.seal),
            "etc/bench/disklist": "localhost tree /var/lib/amanda/tree tree\n",
            "lib/tapelist": "", "lib/amandates": "", "etc/passphrase": "x\n", "etc/seal": SEAL, "user/.amandahosts": f"localhost {USER} amdump\n",
            "etc/inetd.conf": CLIENT.format(port=port),
            "inside": INSIDE.format(home=self.home, repo=self.repo, source=self.source, user_home=user.pw_dir),
        }.items():
            (home / path).write_text(text)
            (home / path).chmod(0o700 if path in ("inside", "etc/seal") else 0o600)
        for folder in (repo, *(home / name for name in ("etc", "debug", "tmp", "user", "lib"))):
            subprocess.run(["chown", "-R", f"{USER}:", folder], check=True, capture_output=True)
        with open(home / "inetd.log", "wb") as log:
            self.daemon = subprocess.Popen(["unshare", "--mount", home / "inside", "root", "inetd", "-i", "/etc/amanda/inetd.conf"],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        if not listens(port):
            raise OSError(f"inetd does not come up: {(home / 'inetd.log').read_text()[-1000:]}")

    def close(self):
        if self.relay:
            self.relay.__exit__()
        if self.daemon:
            dismiss([self.daemon])

    def clients(self):
        return [self.daemon.pid]

    def wire(self):
        return self.relay

    def init(self):
        return None

    def inside(self, command):
        return f"unshare --mount {self.home}/inside {USER} {command}"

    def backup(self, step):
        return f"{self.inside('amdump bench')} || {{ status=$?; cat {self.home}/lib/log/log*; exit $status; }}"

    def restore(self, step):
        found = f"{self.inside('amadmin bench find localhost tree')} > {self.home}/found && grep ' localhost ' {self.home}/found | sort | head -n {step}"
        chain = self.told(f"{found} | {CHAIN} | tr -d ' :-'")
        fetch = self.inside('amfetchdump -a -p bench localhost tree "$when"')
        # amrecover, the client's own way, leaves out what was moved and gives back what was deleted; all archives in a row don't.
        if not chain:
            raise subprocess.SubprocessError("it lists no dump")
        return f"set -o pipefail; for when in {' '.join(chain)}; do {fetch} < /dev/null | tar -C {self.out} --numeric-owner -xpGf - || exit; done"

    def landing(self, step):
        return self.place.out


class Sealed(Amanda):
    name, of = "amanda-sealed", "amanda"
    needs = (*Amanda.needs, "openssl")
    encrypts = True
    seal = 'encrypt client\n  client-encrypt "/etc/amanda/seal"\n  client-decrypt-option "-d"'
    note = "a first dump, then incremental ones; gzip on the client, sealed there by openssl; a restore runs on the server, by a pipe"


ROWS = [Amanda, Sealed]
