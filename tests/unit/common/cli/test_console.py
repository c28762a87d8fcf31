"""What commands print, for people and for programs."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tailrace_common.cli import console
from tailrace_common.cli.program import LogFormat, LogLevel, begin

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


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_piped_json_is_utf_8_in_every_locale(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """A half of a surrogate pair, as of a file's name that is no text, is JSON's own escape."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    begin(LogLevel.INFO, LogFormat.HUMAN)
    console.print_json({"name": "ü 日本", "file": "\udcff"})
    assert json.loads(written.getvalue().decode("utf-8", "strict")) == {"name": "ü 日本", "file": "\udcff"}


def test_a_terminal_gets_escapes_of_what_it_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    begin(LogLevel.INFO, LogFormat.HUMAN)
    console.print_rows([{"name": "ü 日"}])
    sys.stdout.flush()
    assert "ü \\u65e5" in written.getvalue().decode("latin-1")


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


HOST_ID = "c2a1a5be-0f0e-4b57-b3a9-1a7c3f6d8e90"
ADVICE = "correct the pattern: it has the form keyspace.table. If the table is yet to be made, make it first"


def shown(
    rows: list[dict[str, object]], columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> str:
    """What a terminal of this width shows."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    console.print_rows(rows)
    return re.sub(r"\x1b\[\d+m", "", capsys.readouterr().out)


@pytest.mark.parametrize("columns", [44, 60, 80, 100, 200])
def test_no_word_and_no_id_is_broken_at_any_width(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, object]] = [{"host": HOST_ID, "state": "never published", "advice": ADVICE}]
    out = shown(rows, columns, capsys, monkeypatch)
    assert set(f"{HOST_ID} never published {ADVICE}".split()) <= set(out.split())
    assert all(len(line.rstrip()) <= columns for line in out.splitlines())


def test_a_narrow_terminal_gets_a_block_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[dict[str, object]] = [
        {"host": HOST_ID, "other": HOST_ID, "state": "gone", "none": None},
        {"host": "b", "other": None, "state": "in the ring", "none": None},
    ]
    assert [line.rstrip() for line in shown(rows, 80, capsys, monkeypatch).splitlines()] == [
        f"host   {HOST_ID}",
        f"other  {HOST_ID}",
        "state  gone",
        "",
        "host   b",
        "state  in the ring",
    ]


def test_a_cell_of_blanks_is_an_empty_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a key of one blank, which CQL allows."""
    rows: list[dict[str, object]] = [{"key": " ", "host": HOST_ID}]
    assert shown(rows, 20, capsys, monkeypatch) == f"host  {HOST_ID}\n"


@pytest.mark.parametrize("columns", [20, 200])
def test_control_characters_of_data_do_nothing_to_a_terminal(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database's reason quotes the value that it refuses, which may be anybody's."""
    reason = "refused:\n\x1b]0;title\x07\x9b2J\u202ex"
    assert "refused:" in (out := shown([{"host": HOST_ID, "reason": reason}], columns, capsys, monkeypatch))
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(out)
    console.say(f"a\tb\n{reason}")
    assert capsys.readouterr().err == "a\tb\nrefused:\n?]0;title??2J?x\n"


def test_people_may_get_other_heads_than_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    console.print_rows([{"host": "a"}], headings={"host": "host id"})
    assert capsys.readouterr().out == '{"host": "a"}\n'
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    console.print_rows([{"host": "a"}], headings={"host": "host id"})
    assert "host id" in capsys.readouterr().out
