#!/bin/sh
# Makes .venv ready: the package, editable, with all that its tests need.
# Runs before every Makefile target; does nothing when .venv is up to date. PYTHON names another
# interpreter. Whatever goes wrong is said in one line.
set -u
cd "$(dirname "$0")/.." || exit 1

ready=.venv/ready            # what the finished install was made from
unfinished=.venv/unfinished  # there while an install runs, left behind when it is killed
log=.venv/install.log
python=${PYTHON:-python3}

fail() {
    echo "kalmanac: $*" >&2
    exit 1
}

version_of() {
    "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null
}

reason() {
    grep '^ *ERROR: ' "$log" | tail -n 1 | sed 's/^ *ERROR: //' | grep . || echo "pip failed"
}

# The tools' settings at the end of pyproject.toml do not change what is installed.
wanted="$(sed '/^\[tool\./,$d' pyproject.toml | cat - constraints.txt | cksum) $(pwd)"
current=$([ -f .venv/pyvenv.cfg ] && version_of .venv/bin/python)
if [ -z "${PYTHON:-}" ] || [ "$current" = "$(version_of "$python")" ]; then
    if [ -n "$current" ] && [ "$(cat "$ready" 2>/dev/null)" = "$wanted" ]; then
        exit 0
    fi
fi

command -v "$python" >/dev/null 2>&1 ||
    fail "found no '$python'; install Python 3.11 or newer, or name one: make PYTHON=python3.12"
version=$(version_of "$python")
[ -n "$version" ] ||
    fail "'$python' does not run; name a Python 3.11 or newer: make PYTHON=python3.12"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "'$python' is Python $version, needed is 3.11 or newer: make PYTHON=python3.12"
"$python" -c 'import venv, ensurepip' 2>/dev/null ||
    fail "'$python' ($version) lacks the modules venv and ensurepip; install them (Debian, Ubuntu: apt install python3-venv)"

# A killed install, another Python or a moved folder: nothing in .venv can be relied on.
if [ -e "$unfinished" ] || [ "$current" != "$version" ] ||
    { [ -e "$ready" ] && [ "$(cut -d ' ' -f 3- "$ready")" != "$(pwd)" ]; }; then
    rm -rf .venv.old
    [ ! -e .venv ] || mv .venv .venv.old # at once, so that a half deleted .venv never stands there
    rm -rf .venv.old
fi
mkdir -p .venv && : >"$unfinished" || fail "cannot write to $(pwd)/.venv"
rm -f "$ready"

if [ ! -x .venv/bin/python ]; then
    echo "kalmanac: creating .venv with Python $version"
    "$python" -m venv .venv >"$log" 2>&1 ||
        fail "could not create .venv with '$python' ($version); details: $log"
fi
echo "kalmanac: installing into .venv (one to three minutes the first time; log: $log)"
if ! .venv/bin/python -m pip install --disable-pip-version-check --no-input --retries 2 \
    --constraint constraints.txt --editable '.[dev,dmc,export,minari,mujoco,popgym,report]' >"$log" 2>&1; then
    rm -f "$unfinished" # pip gave up in good order: what .venv held before still stands
    fail "could not install the dependencies ($(reason)): check the network, then run make again; details: $log"
fi

rm -f "$unfinished"
echo "$wanted" >"$ready"
