"""What commands print, for people and for programs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tailrace_common.cli import console

ROWS: list[dict[str, object]] = [
    {"name": "a", "ok": True, "id": UUID(int=1), "bytes": b"\x01\xff", "none": None, "list": (1, "x")},
    {"name": "[b]", "ok": False, "id": UUID(int=2), "bytes": b"", "none": None, "list": ()},
]


def test_piped_rows_are_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_rows(ROWS)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == {
        "name": "a",
        "ok": True,
        "id": "00000000-0000-0000-0000-000000000001",
        "bytes": "01ff",
        "none": None,
        "list": [1, "x"],
    }
    assert lines[1]["name"] == "[b]"


def test_rows_on_a_terminal_are_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    console.print_rows(ROWS, title="Things")
    out = capsys.readouterr().out
    assert "Things" in out
    assert "[b]" in out
    assert "yes" in out
    assert "01ff" in out
    assert "{" not in out


def test_rows_are_json_on_a_terminal_too_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.print_rows(ROWS, always_json=True)
    assert len([json.loads(line) for line in capsys.readouterr().out.splitlines()]) == len(list(ROWS))


@pytest.mark.parametrize("terminal", [False, True])
def test_no_rows_print_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    console.print_rows([], title="Things")
    assert capsys.readouterr().out == ""


def test_json_has_a_form_for_everything(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_json({"set": {2, 1}, "path": Path("/x"), "text": "ü"})
    assert capsys.readouterr().out == '{"set": [1, 2], "path": "/x", "text": "ü"}\n'


def test_words_go_to_stderr_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("cannot reach kafka://me:hunter2@host")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "cannot reach kafka://me:**********@host\n")


@pytest.mark.parametrize("terminal", [False, True])
def test_an_empty_list_says_so_on_stderr(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    console.print_rows(iter(()), empty="nothing is parked")
    assert capsys.readouterr() == ("", "nothing is parked\n")
    console.print_rows(ROWS, empty="nothing is parked")
    assert capsys.readouterr().err == ""
