"""`tailrace subscribe` and `cancel` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


@pytest.fixture(autouse=True)
def _settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text('[sink.dwh]\ntype = "sql"\nurl = "sqlite:///dwh.db"\n')


WORDS = ("subscribe", "shop.orders", "--name", "w", "--target", "dwh", "-o", "table={table}", "--unchecked")


def test_a_table_into_a_target() -> None:
    answer = CliRunner().invoke(complete(), WORDS)
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("settings: tailrace.toml") == 1
    made = json.loads(answer.stdout.splitlines()[-1])
    assert (made["target"], made["sink"]) == ("dwh", "sql")
    refused = CliRunner().invoke(complete(), [*WORDS[:-2], "url=sqlite:///other.db", "--unchecked"])
    assert (refused.exit_code, "unknown setting options.url" in refused.output) == (2, True)


@pytest.mark.slow
def test_nothing_is_cancelled_where_nobody_can_be_asked() -> None:
    made = CliRunner().invoke(complete(), WORDS)
    assert made.exit_code == 0, made.output
    refused = CliRunner().invoke(complete(), ["cancel", "w"])
    assert (refused.exit_code, "There is no terminal to ask on: give --yes" in refused.output) == (2, True)
    assert CliRunner().invoke(complete(), ["cancel", "w", "--yes"]).exit_code == 0
