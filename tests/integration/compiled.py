"""Commands that run with the compiled packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tailrace_common.java.find import java_home_for_spark

ROOT = Path(__file__).parents[2]


def run(command: list[str], directory: Path, compiled: Path) -> str:
    """The output of a command that ends well, with the compiled packages."""
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=600,
        env={
            **os.environ,
            "TMPDIR": str(directory),
            "PYTHONPATH": f"{compiled}{os.pathsep}{ROOT}",
            "JAVA_HOME": str(java_home_for_spark()),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
