#!/usr/bin/env bash
# Succeeds where interpreter $1 can build C extensions: its C compiler is here, and so are Python's and C's headers.
set -euo pipefail
read -r -a compiler <<<"${CC:-$("$1" -c 'import sysconfig; print(sysconfig.get_config_var("CC") or "cc")')}"
include=$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')
printf '#include <Python.h>\n' | "${compiler[@]}" -I"$include" -x c -c - -o /dev/null 2>/dev/null
