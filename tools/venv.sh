#!/usr/bin/env bash
# Makes the virtual environment $1 with the project in it, editable, and everything that its tests need.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$1

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
rm -f "$venv"/.installed-*
extras=dev
# A dependency of the keystore's library is a source distribution with C in it.
if tools/can_compile.sh "$venv/bin/python"; then
    extras=dev,keystore
else
    echo "No C compiler with Python's headers here: left out are Java keystores and compiled code, with their tests." >&2
fi
echo "Installing into $venv" >&2
# setuptools warns at length that an editable installation is editable.
PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install -q --disable-pip-version-check -e ".[$extras]"
