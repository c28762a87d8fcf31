"""The compiled plan writes what the record's object says, byte for byte, or leaves the change to that."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Origin
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.changelog.json_plan import formatter
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm, encoded, key_of
from tests.unit.spark.cassandra import Log, with_source
from tests.unit.spark.changes import PLAIN, assignments, row_changes
from tests.unit.spark.sinks.hostile import NAMES, TYPES, extremes
from tests.unit.tables import table

ID = RecordId("t.shop.plain", 3, 7, b"12345678")
STREAM = Assignment(1_700_000_000_000, bytes(range(16)))
WIDE = table(
    {"a": "int", "b": "text"}, {"c": "timestamp", "d": "ascii"},
    regular={"n": "bigint", "flag": "boolean", "u": "uuid", "f": "double", "x": "blob", "l": "frozen<list<int>>"},
    static={"s": "text"}, keyspace="shop", name="wide",
)  # fmt: skip


def slowly(record: OutgoingRecord) -> bytes:
    return encoded(record.value)


def record_of(change: Change, of: Table, assignment: Assignment | None = STREAM) -> OutgoingRecord:
    return OutgoingRecord(ID, change, assignment, RecordForm(of))


def is_planned(record: OutgoingRecord) -> bool:
    return record.form.plan.text(record.record_id, record.change, record.assignment) is not None


WIDE_LOG = Log(WIDE)
VALUES = {"n": -5, "flag": True, "u": "00112233-4455-6677-8899-aabbccddeeff", "f": 1.5e300, "x": b"\x00\xff"}


@pytest.mark.parametrize(
    "change",
    [
        WIDE_LOG.insert((1, 'ü"\n'), (5, "d"), 9, **VALUES, l=[1, 2]),
        WIDE_LOG.update((1, ""), (5, "d"), 9, n=None, flag=False),
        WIDE_LOG.update((-1, "b"), (5, "d"), 9, f=float("nan")),
        WIDE_LOG.static((1, "b"), 9, s="\u2028\x7f\\"),
        WIDE_LOG.delete((1, "b"), (5, "d"), 9),
        WIDE_LOG.delete_partition((1, "b"), 9),
        with_source(WIDE_LOG.insert((1, "b"), (5, "d"), 9), origin=Origin.PARKED, durable=False, seen=5, flags=9),
        with_source(WIDE_LOG.insert((1, "b"), (5, "d"), 9), host='"', datacenter="ä", position=Position(2, 1 << 60, 3)),
    ],
)
def test_what_is_plain_is_written_by_the_plan(change: Change) -> None:
    record = record_of(change, WIDE)
    assert is_planned(record)
    assert record.json == slowly(record)
    for whole in (False, True):
        text = record.form.plan.key(change, primary=whole)
        assert text is not None
        assert text.encode() == key_of(record, primary=whole) == _slow_key(record, whole=whole)


def _slow_key(record: OutgoingRecord, *, whole: bool) -> bytes | None:
    key = record.value["key"]
    assert isinstance(key, dict)
    columns = len(record.change.table.partition_key)
    return encoded(key if whole else dict(list(key.items())[:columns]))


@pytest.mark.slow
@given(row_changes(), assignments)
def test_rows_of_any_times_and_elements(change: Change, assignment: Assignment | None) -> None:
    if change.marker is None and change.deletion is None and not change.cells and not change.column_deletions:
        return
    whole = with_source(replace(change, digest=bytes(16)))
    record = record_of(whole, PLAIN, assignment)
    assert record.json == slowly(record)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_avro_has_not(name: str) -> None:
    of = NAMES[name]
    values = {column.name: "v" if column.type.kind == "text" else 7 for column in of.regular}
    change = Log(of).insert((5,) * len(of.partition_key), (6,) * len(of.clustering), 9, **values)
    record = record_of(change, of)
    assert is_planned(record)
    assert record.json == slowly(record)
    assert key_of(record, primary=False) == _slow_key(record, whole=False)


def test_the_ends_of_all_types() -> None:
    for change in extremes():
        record = record_of(change, TYPES)
        assert record.json == slowly(record)


KINDS = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "duration", "float", "inet", "int", "smallint",
    "text", "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint", "frozen<list<int>>", "frozen<map<text,int>>",
    "frozen<tuple<int,text>>", "vector<float,2>",
)  # fmt: skip


@given(st.sampled_from(KINDS), st.binary(max_size=20))
def test_any_bytes_of_any_type(kind: str, data: bytes) -> None:
    of = table({"id": "int"}, regular={"v": kind}, keyspace="shop", name="plain")
    [cell] = Log(of).update((1,), (), 9, v=None).cells
    change = replace(Log(of).update((1,), (), 9, v=None), cells=(replace(cell, value=data, expires=None),))
    record = record_of(change, of)
    assert record.json == slowly(record)
    if formatter(parse_type(kind))(data) is not None:
        assert is_planned(record)
