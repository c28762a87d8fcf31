"""`tailrace subscribe` as a command: its settings are read once, and a server needs none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


def test_the_settings_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text('[sink.dwh]\ntype = "sql"\nurl = "sqlite:///dwh.db"\n')
    words = ["subscribe", "shop.orders", "--name", "w", "--sink", "dwh", "--unchecked"]
    answer = CliRunner().invoke(complete(), words)
    assert answer.exit_code == 0, answer.output
    assert answer.output.count("settings: tailrace.toml") == 1
    assert json.loads(answer.stdout.splitlines()[-1])["target"].endswith("dwh.db")


@pytest.mark.slow
def test_nothing_is_cancelled_where_nobody_can_be_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "url").write_text("sqlite:///copy.db")
    sink = ["--type", "sql", "-o", "url_file=url"]
    made = CliRunner().invoke(complete(), ["subscribe", "shop.orders", "--name", "w", *sink, "--unchecked"])
    assert made.exit_code == 0, made.output
    refused = CliRunner().invoke(complete(), ["cancel", "w"])
    assert (refused.exit_code, "There is no terminal to ask on: give --yes" in refused.output) == (2, True)
    assert CliRunner().invoke(complete(), ["cancel", "w", "--yes"]).exit_code == 0
