"""`tailrace tail`, as far as it needs no Kafka: which topic, and what a line says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tailrace.cli.cluster.tail import EventLines, event_words, line, published_topic, tail
from tailrace.cli.support.options import topic_of
from tailrace.history.events import EventKind, SchemaEvent, Subject, encode_event
from tailrace_common.kafka import Record
from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.change import Bound, Cell, Change, ColumnDeletion, Deletion, Marker, Op, Origin, Source
from tailrace_schemas.change_json import ChangeForms, change_words
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.unit.tables import table

TABLE = table(
    {"pk": "int", "who": "text"},
    {"ck": "int"},
    {"s": "text"},
    {
        "a b": "text",
        "n": "blob",
        "tags": "set<text>",
        "m": "map<text, int>",
        "l": "list<int>",
        "addr": "addr",
        "at": "timestamp",
    },
)
ENCODER = Encoder(TABLE, "p")
SOURCE = Source("h", "dc", Position(1, 70, 400), 0, 1, seen=1)
KEY = bytes.fromhex("0004000000070000026d6500")
COLUMNS = {column.name: column for column in TABLE.columns}
WHEN = 1_760_000_000_123_456
ROW = Change(
    op=Op.INSERT, table=TABLE, token=1, key=KEY, clustering=(b"\0\0\0\5",), marker=Marker(WHEN), source=SOURCE,
    digest=bytes(16),
)  # fmt: skip
EVENT = SchemaEvent(
    position=Position(1, 7, 20),
    kind=EventKind.ALTERED,
    subject=Subject.TABLE,
    keyspace="ks",
    name="t",
    table=table({"id": "int"}),
    changed=("column w int added", "cdc off"),
    written=1_760_000_000_123_456,
)


def cell(name: str, value: bytes | None, path: bytes | None = None) -> Cell:
    return Cell(COLUMNS[name], path, WHEN, None, 5 if value is None else None, value)


def record_of(change: Change) -> dict[str, Any]:
    """As a reader of the topic has it."""
    return reader_of(entry(TABLE, "p.t", 0)).record(ENCODER.value(change))


def entry(of: Table, topic: str, announced: int) -> SchemaEntry:
    key, value = schema_records(Encoder(of, "p"), topic)[0]
    return replace(entry_from_record(key, value), announced=announced)


def shown(change: Change) -> str:
    """The line, without time and place."""
    head = "2025-10-09 08:53:20.123456Z "
    text = change_words(TABLE, record_of(change))
    assert text.startswith(head)
    return text.removeprefix(head)


ROWS: list[tuple[Sequence[Cell], Sequence[str], str]] = [
    ([], [], ""),
    ([cell("a b", b"x\x1b[2J"), cell("n", b"\x01\xff")], [], ': a b="x\\u001b[2J"; n=0x01ff'),
    ([cell("a b", None)], [], ": a b deleted"),
    ([cell("at", (1_760_000_000_123).to_bytes(8, "big"))], [], ": at=2025-10-09 08:53:20.123Z"),
    ([cell("at", (2**62).to_bytes(8, "big"))], [], ": at=4611686018427387904000 us"),
    ([cell("tags", b"", b"x"), cell("tags", None, b"y")], [], ': tags + {"x"}; tags - {"y"}'),
    ([cell("tags", b"", b"x")], ["tags"], ': tags={"x"}'),
    ([], ["tags"], ": tags={}"),
    ([cell("m", b"\0\0\0\1", b"k"), cell("m", None, b"g")], [], ': m + {"k": 1}; m - {"g"}'),
    ([cell("l", b"\0\0\0\2", bytes(16)), cell("l", None, bytes(15) + b"\1")], [], f": l + {{2}}; l - {{0x{1:032x}}}"),
]


@pytest.mark.parametrize(("cells", "overwritten", "text"), ROWS)
def test_a_row_is_its_key_and_what_is_set(cells: Sequence[Cell], overwritten: Sequence[str], text: str) -> None:
    """No control character of a value reaches the terminal."""
    deletions = tuple(ColumnDeletion(COLUMNS[name], Deletion(WHEN - 1, 5)) for name in overwritten)
    change = replace(ROW, cells=tuple(cells), column_deletions=deletions)
    assert shown(change) == f'insert           pk=7, who="me", ck=5{text}'


@pytest.mark.parametrize(
    ("start", "end", "text"),
    [
        (Bound((), True), Bound((b"\0\0\0\5",), False), "from the partition's start, to (5) exclusive"),
        (Bound((b"\0\0\0\5",), True), Bound((), True), "from (5) inclusive, to the partition's end"),
    ],
)
def test_a_range_has_two_ends(start: Bound, end: Bound, text: str) -> None:
    change = Change(
        op=Op.DELETE_RANGE, table=TABLE, token=1, key=KEY, deletion=Deletion(WHEN, 6), start=start, end=end,
        source=SOURCE, digest=bytes(16),
    )  # fmt: skip
    assert shown(change) == f'delete_range     pk=7, who="me", {text}'


def test_a_static_row_has_no_clustering() -> None:
    change = replace(ROW, op=Op.UPDATE, marker=None, clustering=None, static=True, cells=(cell("s", b"x"),))
    assert shown(change) == 'update           pk=7, who="me": s="x"'


def test_what_is_unusual_is_said() -> None:
    """TTL, and that it did not come from the log."""
    source = replace(SOURCE, origin=Origin.REPLAY, durable=False)
    change = replace(ROW, marker=Marker(WHEN, 60, 70), source=source)
    assert shown(change).endswith("ck=5: TTL 60 s; origin replay; not durable yet")


def test_a_write_time_beyond_any_calendar_is_a_number() -> None:
    text = change_words(TABLE, record_of(replace(ROW, marker=Marker(2**62))))
    assert text.startswith(f"{2**62} us insert")


def test_the_topic_is_the_last_one_announced() -> None:
    """For the table's name, whatever its id."""
    again = replace(TABLE, static=())
    entries = [entry(again, "p.new", 7), entry(TABLE, "p.old", 3)]
    assert topic_of(entries, str(TABLE), "p") == "p.new"
    with pytest.raises(SettingsError, match=f"{TABLE}x: no agent publishes .* prefix p; did you mean {TABLE}"):
        topic_of(entries, f"{TABLE}x", "p")
    with pytest.raises(SettingsError, match="there are: none"):
        topic_of([], "a.b", "p")


def test_why_a_table_has_no_topic_is_said_by_what_cassandra_has() -> None:
    alter = r"shop\.plain: shop\.plain has no cdc; ALTER TABLE shop\.plain WITH cdc = true"
    with pytest.raises(SettingsError, match=alter):
        published_topic([], "shop.plain", "p", lambda: {"shop.plain": False})
    with pytest.raises(SettingsError, match=r"there is no such table: shop\.plane; did you mean shop\.plain"):
        published_topic([], "shop.plane", "p", lambda: {"shop.plain": False})

    def unreachable() -> dict[str, bool]:
        raise ServiceError("Cassandra does not answer")

    with pytest.raises(SettingsError, match="no agent publishes"):
        published_topic([], "shop.plain", "p", unreachable)


def test_a_piped_line_is_the_record_and_its_place() -> None:
    """Everything in it is JSON."""
    one = entry(TABLE, "p.t", 0)
    change = reader_of(one).change(record_of(replace(ROW, cells=(cell("n", b"\1"),))))
    found = json.loads(json.dumps(line(ChangeForms(), 2, 40, change)))
    assert list(found)[:5] == ["table", "partition", "offset", "op", "token"]
    assert (found["table"], found["partition"], found["offset"]) == (str(TABLE), 2, 40)
    assert (found["columns"]["n"], found["digest"], found["source"]["segment"]) == ("01", "00" * 16, 70)


def record(offset: int, value: bytes) -> Record:
    """One of the topic."""
    return Record(offset=offset, key=b"", value=value, timestamp=0)


def test_words() -> None:
    """When, what, where; nothing that a terminal would obey."""
    line = "2025-10-09 08:53:20.123456Z table ks.t altered: column w int added; cdc off [h 1/7:20]"
    assert event_words("h", EVENT) == line
    assert "(concluded, not read)" in event_words("h", replace(EVENT, inferred=True))
    assert "ks.?t?" in event_words("h", replace(EVENT, name="\x1bt\n"))
    assert event_words("h", replace(EVENT, written=1 << 62)).startswith(f"{1 << 62} us table")


def test_copies_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON where nobody looks; what is no event is named, and counted."""
    lines = EventLines()
    other = replace(EVENT, written=EVENT.written + 1)
    found = [encode_event("h1", EVENT), encode_event("h2", replace(EVENT, position=Position(1, 9, 9))), b"{}"]
    assert [lines.show(record(n, value)) for n, value in enumerate([*found, encode_event("h2", other)])] == [
        True,
        False,
        False,
        True,
    ]
    out, errors = capsys.readouterr()
    assert [(row["offset"], row["host"], row["kind"]) for row in map(json.loads, out.splitlines())] == [
        (0, "h1", "altered"),
        (3, "h2", "altered"),
    ]
    assert "offset 2: not decoded" in errors
    assert lines.left_out == 1


def test_copies_of_later_events_are_left_out_too_and_memory_has_an_end() -> None:
    lines = EventLines(copies=3)
    events = [encode_event("h1", replace(EVENT, written=EVENT.written + number)) for number in range(9)]
    for number, event in enumerate(events):
        assert [lines.show(record(number, event)) for _ in range(2)] == [True, False]
    assert lines.show(record(9, events[0]))


@pytest.mark.parametrize(("name", "flag"), [(None, False), ("ks.t", True)])
def test_one_of_both(name: str | None, flag: bool) -> None:
    """A table, or the schema."""
    with pytest.raises(SettingsError, match="name one table, or give --schema-changes"):
        tail(name, None, schema_changes=flag)
