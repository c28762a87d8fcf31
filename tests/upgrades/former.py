"""The last version's programs, built from the commit that `make record-version` noted, to run beside this version's."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from packaging.version import Version

_ROOT: Final = Path(__file__).parents[2]
_COMMITS: Final = _ROOT / "tests" / "fixtures" / "versions"
_RUN: Final = """
import os, sys
sys.path.insert(0, {site!r})
os.environ["PYTHONPATH"] = {site!r}  # of Spark's Python processes
from tailrace.cli.main import run
run()
"""


def last_commit() -> str:
    """The commit of the last version."""
    newest = max(_COMMITS.glob("*.commit"), key=lambda file: Version(file.stem))
    return newest.read_text("utf-8").strip()


def missing() -> str:
    """Why the last version cannot be built here; empty where it can."""
    commit = last_commit()
    command = ["git", "-C", str(_ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
    try:
        known = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return "git is not here, which has the last version's sources"
    return "" if known else f"the last version's commit is not here: git fetch origin {commit}"


def build_former(directory: Path) -> tuple[str, ...]:
    """Install the last version below `directory`; what Python is told to run as its `tailrace`."""
    sources, site = directory / "sources", directory / "site"
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", last_commit()], capture_output=True, check=True, timeout=600
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(sources, filter="data")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    subprocess.run(
        [*pip, "--target", str(site), str(sources)],
        env={**os.environ, "TAILRACE_COMPILE": "0"}, capture_output=True, check=True, timeout=600,
    )  # fmt: skip
    return "-c", _RUN.format(site=str(site))
