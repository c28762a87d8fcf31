"""Whether to compile the hot path, decided from TAILRACE_COMPILE and from whether this machine can build C extensions.

It runs before anything is installed, so it uses the standard library alone.

`python tools/compilation.py` succeeds where this interpreter can build C extensions.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

VARIABLE: Final = "TAILRACE_COMPILE"
FALLBACK: Final = (
    "tailrace: NOT COMPILED, pure Python is installed: {reason}. Decoding is about 18 times slower. For compiled code "
    "install a C compiler and Python's headers (on Debian: gcc, libc6-dev, python3-dev), then install tailrace again."
)


class Compilation(Enum):
    """What a build does about compiled code."""

    OFF = "off"
    WHERE_POSSIBLE = "where possible"
    REQUIRED = "required"


def requested(environ: Mapping[str, str], *, editable: bool) -> Compilation:
    """What TAILRACE_COMPILE asks for: 1 is required, 0 is off. Unset: an installation compiles where it can.

    An editable installation stays pure unless asked: compiled code would hide the sources that are being edited.
    """
    value = environ.get(VARIABLE, "")
    if value == "1":
        return Compilation.REQUIRED
    return Compilation.OFF if value == "0" or editable else Compilation.WHERE_POSSIBLE


def compiler_problem() -> str | None:
    """Why this interpreter cannot build C extensions; None where it can.

    The compiler must find Python's headers and C's own, and link a library.
    """
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    include = sysconfig.get_path("include")
    with tempfile.TemporaryDirectory() as directory:
        source = Path(directory, "probe.c")
        source.write_text("#include <Python.h>\nint probe(void) { return PY_VERSION_HEX; }\n", encoding="utf-8")
        output = str(source.with_suffix(".so"))
        command = [*compiler, "-shared", "-fPIC", f"-I{include}", str(source), "-o", output]
        try:
            outcome = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - the user's own CC
        except OSError as error:
            return f"no C compiler ({compiler[0]}: {error.strerror})"
    if outcome.returncode == 0:
        return None
    errors = [line for line in outcome.stderr.splitlines() if "error" in line]
    return f"{compiler[0]} cannot build for Python ({(errors or ['no message'])[0].strip()})"


def closing_line(wheel: str, environ: Mapping[str, str]) -> str:
    """The last line of a build: which code the wheel with this file name has, and why where it is pure."""
    if not wheel.endswith("-none-any.whl"):
        return f"tailrace: {wheel} has compiled code."
    if environ.get(VARIABLE) == "0":
        return f"tailrace: {wheel} is pure Python, as {VARIABLE}=0 asks. Decoding is about 18 times slower."
    return FALLBACK.format(reason=compiler_problem() or "the compilation failed, see its messages above")


if __name__ == "__main__":
    sys.exit(compiler_problem() is not None)
