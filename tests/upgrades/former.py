"""The last version's programs, built from the commit that `make record-version` noted, to run beside this version's."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import Version

_ROOT: Final = Path(__file__).parents[2]
_COMMITS: Final = _ROOT / "tests" / "fixtures" / "versions"
_PATHS: Final = """
import os, runpy, sys
sys.path.insert(0, {site!r})
os.environ["PYTHONPATH"] = {site!r}  # of Spark's Python processes
"""
_RUN: Final = """
from tailrace.cli.main import run
run()
"""


@dataclass(frozen=True, slots=True)
class Former:
    """The last version: its sources with their tests, and `site`, where it is installed."""

    sources: Path
    site: Path

    @property
    def program(self) -> tuple[str, ...]:
        """What Python is told to run as its `tailrace`."""
        return "-c", self._paths + _RUN

    def script(self, path: str) -> tuple[str, ...]:
        """The same for a file of its sources, such as a program of its tests."""
        return "-c", f"{self._paths}runpy.run_path({str(self.sources / path)!r}, run_name='__main__')\n"

    @property
    def _paths(self) -> str:
        return _PATHS.format(site=str(self.site))


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


def build_former(directory: Path) -> Former:
    """The last version, installed below `directory`."""
    former = Former(directory / "sources", directory / "site")
    archive = subprocess.run(
        ["git", "-C", str(_ROOT), "archive", last_commit()], capture_output=True, check=True, timeout=600
    )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(former.sources, filter="data")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-compile"]
    environment = {**os.environ, "TAILRACE_COMPILE": "0"}
    subprocess.run(
        [*pip, "--target", str(former.site), str(former.sources)],
        env=environment, capture_output=True, check=True, timeout=600,
    )  # fmt: skip
    return former
