"""`tailrace server-meta`: a backup of one meta database fills another, which has to be empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.main import complete


@pytest.mark.slow
@pytest.mark.promise("subscription.backup")
def test_a_backup_fills_another_meta_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.toml").write_text('[server]\nurl = "sqlite:///other.db"\n')
    sink = ("--target", "local", "--unchecked")  # the one that there is unless others are set
    for words in (
        ("subscribe", "shop.orders", "--name", "w", *sink),
        ("server-meta", "backup", "meta.jsonl"),
        ("server-meta", "restore", "meta.jsonl", "-c", "other.toml"),
    ):
        answer = CliRunner().invoke(complete(), words)
        assert answer.exit_code == 0, answer.output
    assert (tmp_path / "meta.jsonl").stat().st_mode & 0o777 == 0o600
    listed = CliRunner().invoke(complete(), ["subscriptions", "-c", "other.toml"])
    assert [json.loads(line)["name"] for line in listed.stdout.splitlines()] == ["w"]
    refused = CliRunner().invoke(complete(), words)
    assert refused.exit_code != 0
    assert "is not empty: restore into a new one" in refused.output


@pytest.mark.slow
@pytest.mark.promise("subscription.backup")
@pytest.mark.parametrize("sign", ["\u2028", "\x85"])
def test_a_backup_is_restored_whatever_signs_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sign: str) -> None:
    """Python takes some of them for the end of a line; JSON has them within texts."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.toml").write_text('[server]\nurl = "sqlite:///other.db"\n')
    where = f"name = 'a{sign}b'"
    for words in (
        ("subscribe", "shop.orders", "--name", "w", "--target", "local", "--unchecked", "--where", where),
        ("server-meta", "backup", "meta.jsonl"),
        ("server-meta", "restore", "meta.jsonl", "-c", "other.toml"),
    ):
        answer = CliRunner().invoke(complete(), words)
        assert answer.exit_code == 0, answer.output
    listed = CliRunner().invoke(complete(), ["subscriptions", "w", "-c", "other.toml"])
    assert json.loads(listed.stdout)["where"] == where
