#!/usr/bin/env bash
# Makes the virtual environment $1 with the project in it, editable, and extra $2: "spark,java" to run all of it, dev for the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1 extras=$2

suits() { # a Python that we run on, with what `python -m venv` needs
    "$1" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 ~/.pyenv/versions/3.1[123].*/bin/python3; do
        if suits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11, 3.12 or 3.13 with venv found (python3 is $(python3 -V 2>/dev/null || echo not there))." >&2
    echo "Install one (on Debian: python3-venv too), or name it: make PYTHON=/path/to/python3 ..." >&2
    return 1
}

if ! { [ -x "$venv/bin/python" ] && suits "$venv/bin/python"; }; then
    python=$(find_python)
    echo "Making $venv with $("$python" -V)" >&2
    "$python" -m venv --clear "$venv"
fi
rm -f "$venv"/.installed-* "$venv"/.browser-* "$venv"/.runtime-*
if [ "$extras" = dev ] && ! "$venv/bin/python" tools/compilation.py; then
    echo "No C compiler with Python's headers here: left out are compiled code and its tests." >&2
fi
echo "Installing into $venv: a minute or two the first time" >&2
quiet=-q
if [ -t 2 ]; then quiet=; fi
# setuptools warns at length that an editable installation is editable. What is piped out of a target is not pip's.
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install $quiet --disable-pip-version-check -e ".[$extras]" >&2
