""""""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tailrace.demo.flow import Landed, Published, Screen, committed_ends, line, words, written
from tailrace.demo.script import LAST, LAST_STATEMENTS
from tailrace_schemas.change import Bound, Cell, Change, Deletion, Marker, Op, Source
from tailrace_schemas.change_json import ChangeJson
from tailrace_schemas.position import Position
from tests.unit.tables import table

TABLE = table({"a": "text"}, {"b": "int"}, {"s": "boolean"}, {"v": "double"}, keyspace="shop", name="orders")
STREAM = "0x" + "ab" * 16
COMMON: dict[str, Any] = {"token": 1, "digest": bytes(16), "source": Source("h", "dc", Position(1, 1, 1), 0, 1)}
SEVEN = b"\x00\x00\x00\x07"
V = next(column for column in TABLE.columns if column.name == "v")
INSERT = Change(
    op=Op.INSERT, table=TABLE, key=b"x", clustering=(SEVEN,), marker=Marker(5),
    cells=(Cell(V, None, 5, None, None, bytes(8)),), **COMMON,
)  # fmt: skip
STATIC = Change(
    op=Op.UPDATE,
    table=TABLE,
    key=b"x",
    static=True,
    cells=(Cell(TABLE.static[0], None, 5, None, None, b"\1"),),
    **COMMON,
)
RANGE = Change(
    op=Op.DELETE_RANGE, table=TABLE, key=b"x", deletion=Deletion(6, 0), start=Bound((SEVEN,), True),
    end=Bound((), True), **COMMON,
)  # fmt: skip
ROW: dict[str, Any] = {"a": "x", "b": 7, "s": None, "u": "a text", "v": float("inf"), "w": b"\1"}


def test_the_checkpoint_tells_what_the_sink_has(tmp_path: Path) -> None:
    assert committed_ends(tmp_path) == {}
    for name in ("commits", "offsets"):
        (tmp_path / name).mkdir()
    assert committed_ends(tmp_path) == {}
    for batch, end in (("9", 7), ("10", 8), ("11", 9)):
        (tmp_path / "offsets" / batch).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"demo.shop.orders":{{"1":{end}}}}}')
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    assert committed_ends(tmp_path) == {("demo.shop.orders", 1): 7}
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    (tmp_path / "commits" / ".11.tmp").write_text("")
    assert committed_ends(tmp_path) == {("demo.shop.orders", 1): 8}


def landed(change: Change, *rows: dict[str, Any]) -> Landed:
    record = ChangeJson(TABLE).record(change)
    return Landed(Published(TABLE, record, change.key, ("demo.shop.orders", 1), 4), rows, STREAM)


@pytest.mark.parametrize(
    ("change", "rows", "shown"),
    [
        (INSERT, (ROW,), 'insert orders a="x", b=7  [1] @ 4  v=Infinity, u=a text, w=0x01'),
        (INSERT, ({"a": "x", "b": 7, "s": None},), 'insert orders a="x", b=7  [1] @ 4  the key alone'),
        (INSERT, (), 'insert orders a="x", b=7  [1] @ 4  no such row'),
        (STATIC, (ROW, ROW), 'update orders a="x"  [1] @ 4  2 rows in the partition'),
        (
            RANGE,
            (),
            'delete range orders a="x", from (7) inclusive, to the partition\'s end  [1] @ 4  0 rows in the partition',
        ),
    ],
)
def test_a_change_and_what_the_file_has_for_people(
    change: Change, rows: tuple[dict[str, Any], ...], shown: str
) -> None:
    head, _, rest = words(landed(change, *rows)).plain.partition(" orders ")
    assert f"{head} orders {rest.lstrip()}" == shown


def test_a_change_as_json_is_what_tail_prints_and_what_the_file_has() -> None:
    change = landed(INSERT, ROW)
    place = {"topic": "demo.shop.orders", "partition": 1, "offset": 4}
    stored = {**ROW, "v": "inf", "w": "01"}
    told = json.loads(json.dumps(line(change)))
    assert told == {**ChangeJson(TABLE).write(INSERT), **place, "stream_id": STREAM, "row": stored}
    assert line(landed(INSERT))["row"] is None
    assert line(landed(RANGE, ROW))["rows"] == 1


def test_a_terminal_shows_changes_and_how_far_all_is() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    screen = Screen(console, 302)
    screen.landed(landed(INSERT, ROW))
    screen.refresh(150, 3, 2, 0.26)
    screen.close()
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for part in (
        "insert orders",
        "u=a text",
        "150 statements",
        "2 of 3 changes in Kafka, 0.3 s after the write (median)",
    ):
        assert part in shown


def test_a_pipe_gets_json_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(None, 302)
    screen.landed(landed(INSERT, ROW))
    screen.refresh(150, 3, 2, 0.26)
    screen.close()
    told = capsys.readouterr()
    assert [json.loads(text)["offset"] for text in told.out.splitlines()] == [4]
    assert told.err == ""


def test_a_terminal_that_is_gone_is_left_all_the_same() -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        screen = Screen(Console(file=terminal, force_terminal=True, width=80), None)
        os.close(ours)
        screen.close()
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), theirs)


@pytest.mark.parametrize("changes", [1, 2, 30])
def test_so_many_statements_and_the_last_ones(changes: int) -> None:
    statements = list(written(1, changes, None))
    assert len(statements) == changes + len(LAST_STATEMENTS)
    assert statements[-len(LAST_STATEMENTS) :] == list(LAST_STATEMENTS)
    assert not any(LAST in statement for statement in statements[: -len(LAST_STATEMENTS)])
