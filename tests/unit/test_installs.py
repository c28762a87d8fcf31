"""Every extra is tried alone, and what a user installs starts."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]


def test_every_extra_is_tried() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installs = tool("installs")
    assert installs.MODULES.keys() == project["optional-dependencies"].keys() - installs.NOT_FOR_USERS
    assert [str(entry) for entry in installs.installations(["3.11", "3.12"])][:3] == [
        "tailrace on Python 3.11",
        "tailrace on Python 3.12",
        "tailrace[java] on Python 3.11",
    ]


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_every_extra_installs_alone_and_starts(tmp_path: Path) -> None:
    source = tmp_path / "source"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    build = [sys.executable, "-m", "build", "-q", "--outdir", str(tmp_path / "dist"), str(source)]
    subprocess.run(build, check=True, env={"TAILRACE_COMPILE": "0", "PATH": "/usr/bin:/bin"})
    [wheel] = (tmp_path / "dist").glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    outcome = subprocess.run(
        [sys.executable, "tools/installs.py", str(wheel)], cwd=ROOT, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stdout
