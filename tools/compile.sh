#!/usr/bin/env bash
# Installs the compiled code into directory $2 with interpreter $1, unless it is there from the same sources.
# The tree is copied first: mypyc and setuptools leave their products beside what they build.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
target=$(pwd)/$2
mkdir -p "$(dirname "$target")"
exec 9> "$target.lock"  # one compilation at a time: others wait for it, and find what it made
flock 9

sources() { find common connector schemas spark -name '*.py' -not -name _compiled_sources.py -print0 | sort -z; }
stamp=$({ "$python" -V; sources | xargs -0 cat setup.py pyproject.toml tools/{build_backend,compilation}.py tools/mypyc.toml; } | sha256sum | cut -c1-16)
if [ -e "$target/.from-$stamp" ]; then
    exit
fi
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
{ sources; find common connector schemas spark \( -name '*.json' -o -name '*.properties' -o -name '*.css' -o -name '*.js' -o -name '*.svg' -o -name '*.html' -o -name py.typed \) -print0; } |
    xargs -0 cp --parents -t "$copy"
cp --parents -t "$copy" setup.py pyproject.toml README.md LICENSE NOTICE tools/{build_backend,compilation}.py tools/mypyc.toml
rm -rf "$target"
# Not optimised and without debug information: the tests are about what the code does, and gcc takes a third as long.
CFLAGS="-g0 ${CFLAGS:-}" MYPYC_OPT_LEVEL=${MYPYC_OPT_LEVEL:-0} TAILRACE_COMPILE=1 "$python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
    --target "$target" "$copy"
touch "$target/.from-$stamp"
