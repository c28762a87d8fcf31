"""`tailrace demo` before it starts anything."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


def test_without_spark_it_says_so_before_it_fetches_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    answer = CliRunner().invoke(complete(), ["demo", "--directory", str(tmp_path / "demo")])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr == "tailrace: the demo needs pyspark: pip install 'tailrace[spark]'\n"
    assert not (tmp_path / "demo").exists()
