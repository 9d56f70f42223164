#!/bin/sh
# The second reader against the test values of docs/format.md and against every golden repository. One line a check;
# exit status 0 if all hold, 1 if not. Needs python3 (3.11 or newer) with venv and pip, and PyPI or DRUMLIN_VENV: a
# folder for the virtual environment, kept and used again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
venv=${DRUMLIN_VENV:-$temporary/venv}
export PYTHONDONTWRITEBYTECODE=1

[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || exit 1
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt" || exit 1

status=0
"$venv/bin/python" "$here/selftest.py" || status=1
found=no
for golden in "$here"/../golden/*/; do
    [ -f "$golden/expected.json" ] || continue
    found=yes
    TMPDIR=$temporary "$venv/bin/python" "$here/compare.py" "$golden" || status=1
done
if [ "$found" = no ]; then
    echo "FAILED: no golden repository"
    status=1
fi
exit $status
