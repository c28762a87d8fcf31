"""`tailrace check`: each thing that can be wrong is named, with what to do."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tailrace.cli.check import check_directories, check_stream
from tailrace.cli.main import app
from tailrace_common.settings import load_settings


def environ(**given: str | Path) -> dict[str, str]:
    return {f"TAILRACE_{name}": str(value) for name, value in given.items()}


def test_directories_that_are_there(tmp_path: Path) -> None:
    settings = load_settings(None, environ(AGENT__CDC_RAW_DIRECTORY=tmp_path, AGENT__COMMITLOG_DIRECTORY=tmp_path))
    assert [(check.name, check.ok) for check in check_directories(settings)] == [
        ("cdc_raw_directory", True),
        ("commitlog_directory", True),
    ]


def test_directories_that_are_not(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    settings = load_settings(None, environ(AGENT__CDC_RAW_DIRECTORY=gone, AGENT__COMMITLOG_DIRECTORY=gone))
    raw, log = check_directories(settings)
    assert not raw.ok
    assert str(gone) in raw.detail
    assert "cdc_enabled" in raw.advice
    assert not log.ok


def test_a_directory_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda _, mode: not mode & os.W_OK)  # root may write everywhere
    (check,) = check_directories(load_settings(None, environ(AGENT__CDC_RAW_DIRECTORY=tmp_path)))
    assert not check.ok
    assert "Cassandra's user" in check.advice


def test_stream_without_a_chosen_sink(tmp_path: Path) -> None:
    text = "[sink.a]\n[sink.b]\n"
    (tmp_path / "t.toml").write_text(text, encoding="utf-8")
    sink, _ = check_stream(load_settings(tmp_path / "t.toml", {}))
    assert not sink.ok
    assert "the sinks are: a, b" in sink.detail


def test_stream_that_is_well(tmp_path: Path) -> None:
    given = environ(SINK__A__URL=f"sqlite:///{tmp_path}/a.db", STREAM__CHECKPOINT=tmp_path / "new" / "place")
    sink, checkpoint = check_stream(load_settings(None, given))
    assert (sink.ok, sink.detail) == (True, f"{tmp_path}/a.db")
    assert checkpoint.ok


def test_the_password_of_a_sink_is_not_shown(tmp_path: Path) -> None:
    given = environ(SINK__A__URL="postgresql://u:hunter2@127.0.0.1:1/d", STREAM__CHECKPOINT=tmp_path)
    assert not any("hunter2" in check.detail for check in check_stream(load_settings(None, given)))


def test_the_command_prints_json_lines_and_fails(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(f'[agent]\ncdc_raw_directory = "{tmp_path}/gone"\n', encoding="utf-8")
    answer = CliRunner().invoke(app, ["check", "-c", str(path), "--only", "directories"])
    assert answer.exit_code == 1
    (line,) = (json.loads(line) for line in answer.stdout.splitlines())
    assert line["name"] == "cdc_raw_directory"
    assert line["advice"]
    assert "1 of 1 checks failed" in answer.stderr
