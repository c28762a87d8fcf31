"""Programs that the tests of images and manifests need, and that a machine may lack."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GO = Path("~/go/bin").expanduser()
# Where podman looks for its helpers, which are not on the PATH.
_HELPERS = ("/usr/local/libexec/podman", "/usr/local/lib/podman", "/usr/libexec/podman", "/usr/lib/podman")


def require(*programs: str) -> None:
    """Skip the test where one of these is not on the PATH, nor where `go install` and podman have programs."""
    missing = [program for program in programs if path_of(program) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


def path_of(program: str) -> str | None:
    """Where a program is."""
    folders = os.pathsep.join((os.environ.get("GOBIN") or str(GO), *_HELPERS))
    return shutil.which(program) or shutil.which(program, path=folders)


def run(*command: str, timeout: float = 600, **environ: str) -> str:
    """The output of a command that ends well."""
    words = [path_of(command[0]) or command[0], *command[1:]]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=timeout, env={**os.environ, **environ})
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout[-6000:]}\n{ended.stderr[-6000:]}"
    return ended.stdout
