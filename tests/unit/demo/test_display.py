from __future__ import annotations

import io
import json
import os
import signal
from typing import Any

import pytest
from rich.console import Console

from tailrace.demo.comparison import Comparison, Difference
from tailrace.demo.display import Counts, Display, Landed, Outcome, Seen
from tailrace.demo.feed import key_values
from tailrace.demo.lines import Lines, verdict
from tailrace.demo.screen import Screen
from tailrace_schemas.change import Bound, Change, Deletion, Marker, Op
from tests.unit.tables import table

TABLE = table({"a": "text"}, {"b": "int"}, {"s": "boolean"}, {"v": "double"}, keyspace="shop", name="orders")
INSERT = Change(op=Op.INSERT, table=TABLE, token=1, key=b"x", clustering=(b"\x00\x00\x00\x07",), marker=Marker(5))
RANGE = Change(
    op=Op.DELETE_RANGE,
    table=TABLE,
    token=1,
    key=b"x",
    deletion=Deletion(6, 0),
    start=Bound((b"\x00\x00\x00\x07",), True),
    end=Bound((), True),
)
STREAM = "0x" + "ab" * 16
DIFFERENT = Comparison({"shop.orders": 2}, (Difference("shop.orders", {"a": "x"}, "v", 1.0, None),))


def seen(change: Change) -> Seen:
    return Seen("demo.shop.orders", 1, 4, change, key_values(change))


def play(display: Display, comparison: Comparison) -> None:
    display.fetched(1 << 20, 4 << 20)
    display.fetched(4 << 20, 4 << 20)
    display.part("kafka", "running", "127.0.0.1:9092")
    display.landed(Landed(seen(INSERT), STREAM, row={"a": "x", "b": 7, "s": None, "v": float("inf")}, seconds=0.25))
    display.landed(Landed(seen(RANGE), STREAM, rows=0))
    counts = Counts(written=2, published=2, landed=2, rows=1, latencies=(0.1, 0.25, 9.0))
    display.counts(counts)
    display.refresh()
    display.finished(Outcome(comparison=comparison, counts=counts, seconds=12.34))
    display.addresses({"SQLite": "/tmp/copy.db"})  # noqa: S108 - only shown
    display.close()


def test_lines_are_json_and_words_go_elsewhere() -> None:
    out, words = io.StringIO(), list[str]()
    play(Lines(out, words.append), Comparison({"shop.orders": 1}))
    insert, deleted, outcome = [json.loads(line) for line in out.getvalue().splitlines()]
    common: dict[str, Any] = {
        "table": "shop.orders",
        "topic": "demo.shop.orders",
        "partition": 1,
        "offset": 4,
        "stream_id": STREAM,
    }
    row = {"a": "x", "b": 7, "s": None, "v": "inf"}
    assert insert == common | {"op": "insert", "key": {"a": "x", "b": 7}, "written": 5, "row": row, "seconds": 0.25}
    assert deleted == common | {
        "op": "delete_range",
        "key": {"a": "x", "b": None},
        "from": {"values": ["00000007"], "inclusive": True},
        "to": {"values": [], "inclusive": True},
        "written": 6,
        "rows": 0,
        "seconds": None,
    }
    assert outcome == {
        "identical": True,
        "rows": 1,
        "tables": {"shop.orders": 1},
        "statements": 2,
        "changes": 2,
        "median_seconds": 0.25,
        "seconds": 12.3,
    }
    assert words == ["jars: 1 of 4 MiB", "kafka: running 127.0.0.1:9092", "identical: 1 rows", "SQLite: /tmp/copy.db"]


def test_a_difference_is_in_the_last_line() -> None:
    out = io.StringIO()
    play(Lines(out, lambda _: None), DIFFERENT)
    last = json.loads(out.getvalue().splitlines()[-1])
    assert last["identical"] is False
    assert last["differences"] == ["shop.orders {'a': 'x'}: v is 1.0 in Cassandra, None in SQLite"]
    assert verdict(DIFFERENT).startswith("NOT identical: 1 differences\n")


def test_a_terminal_that_is_gone_is_its_hangup() -> None:
    """A write may fail before the shell passes SIGHUP on."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    ours, theirs = os.openpty()
    before = signal.signal(signal.SIGHUP, interrupt)
    try:
        with os.fdopen(theirs, "w") as terminal:
            screen = Screen(Console(file=terminal, force_terminal=True, width=80))
            os.close(ours)
            with pytest.raises(KeyboardInterrupt):
                screen.finished(Outcome(comparison=DIFFERENT, counts=Counts(), seconds=1))
            with open(os.devnull, "w") as nowhere:
                os.dup2(nowhere.fileno(), theirs)
            screen.close()
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("width", [60, 160])
def test_the_screen_shows_the_flow_and_the_outcome(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=40)
    play(Screen(console), DIFFERENT)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    for words in ("Cassandra", "SQLite", "127.0.0.1:9092", "insert orders", "NOT identical", "Ctrl-C"):
        assert words in shown
    if width > 100:
        assert "demo.shop.orders [1] @ 4" in shown


WIDE = table({"site": "text", "sensor": "int"}, {"seq": "bigint"}, {}, {"v": "text"}, keyspace="shop", name="readings")
PARTITION = Change(
    op=Op.DELETE_PARTITION, table=WIDE, token=1, key=b"\0\5paris\0\0\4\0\0\0\14\0", deletion=Deletion(6, 0)
)


@pytest.mark.parametrize(
    ("width", "there"),
    [(60, ()), (80, ("[1] @ 123",)), (100, ("[1] @ 123", "0xabab…abab")), (140, ("shop.readings [1]",))],
)
def test_change_key_and_row_are_seen_at_every_width(width: int, there: tuple[str, ...]) -> None:
    console = Console(file=io.StringIO(), force_terminal=False, width=width, height=40)
    screen = Screen(console)
    screen.landed(Landed(Seen("demo.shop.readings", 1, 123456, PARTITION, key_values(PARTITION)), STREAM, rows=0))
    row = {"a": "x", "b": 7, "v": 1.5, "w": "a text that is long enough for any width of a terminal " * 3}
    screen.landed(Landed(seen(INSERT), STREAM, row=row))
    with console.capture() as capture:
        console.print(screen.frame())
    screen.close()
    shown = capture.get()
    for words in ("delete partition readings", "paris, 12, …", "insert orders", "x, 7", "v=1.5, w=a", *there):
        assert words in shown, shown


@pytest.mark.parametrize("width", [40, 80])
def test_what_is_to_be_copied_is_in_one_piece(width: int) -> None:
    """On a line of its own, without a frame."""
    console = Console(file=io.StringIO(), force_terminal=False, width=width)
    screen = Screen(console)
    path = "/somewhere/tailrace-demo/tailrace.toml"
    command = f"sqlite3 /somewhere/{'x' * 60}/copy.db 'SELECT * FROM shop_orders'"
    with console.capture() as capture:
        screen.addresses({"SQLite": command, "settings": path})
    assert capture.get().splitlines()[-4:] == ["SQLite", command, "settings", path]
