"""What is cut out of a message is what fastavro writes of its change, byte for byte, or nothing is cut."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro.encode import Encoder
from tailrace_schemas.avro.frames import FRAME
from tailrace_schemas.avro.schema import KeyChoice
from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.forms import ValueForms
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm
from tailrace_spark.sinks.kafka.avro import AvroChanges, AvroWriters
from tailrace_spark.sinks.kafka.avro_splice import Splice
from tests.unit.spark.cassandra import Log, with_source
from tests.unit.spark.changes import PLAIN, assignments, row_changes
from tests.unit.spark.sinks.hostile import NAMES, TYPES, extremes
from tests.unit.spark.sinks.kafka.ids import Ids
from tests.unit.tables import table

PREFIX = "shop-cluster"
STREAM = Assignment(1_700_000_000_000, bytes(range(16)))
WIDE = table(
    {"a": "int", "b": "text", "day": "date"}, {"c": "timestamp", "d": "ascii"},
    regular={
        "n": "bigint", "sold": "timestamp", "f": "double", "x": "blob", "l": "frozen<list<int>>", "m": "set<text>",
    },
    static={"s": "text"}, keyspace="shop", name="wide",
)  # fmt: skip
LOG = Log(WIDE)
KEY, ROW = (1, "b" * 100, 20_000), (5, "d")
LAST_MS = 253_402_300_799_999
LAST_DAY = 2_932_896


def as_records(change: Change, of: Table, assignment: Assignment | None = STREAM) -> list[bool]:
    """Require equal keys and values with the message and without; whether each was cut out of the message."""
    cut = []
    choices: tuple[KeyChoice, ...] = ("partition", "primary")
    for choice in choices:
        message = Encoder(of, PREFIX, choice).value(change)
        record_id = RecordId("t.shop.wide", 130, 1 << 40, message[2:10])
        form = AvroChanges(AvroWriters(Ids()), PREFIX, choice)
        spliced = OutgoingRecord(record_id, change, assignment, RecordForm(of), message)
        plain = replace(spliced, message=b"")
        for record in (spliced, plain):  # the registry gives the ids in the order in which it is asked
            form.key("changes", record)
        assert form.key("changes", spliced) == form.key("changes", plain)
        assert form.value("changes", spliced) == form.value("changes", plain)
        cut.append(Splice(of, PREFIX, choice).knows(message, change))
    return cut


@pytest.mark.parametrize(
    "change",
    [
        LOG.insert(KEY, ROW, 9, n=-5, sold=7, f=1.5e300, x=b"\x00\xff", l=[1, 2]),
        LOG.insert((1, "", LAST_DAY), (LAST_MS, "d"), 9, sold=LAST_MS),
        LOG.update(KEY, ROW, 9, n=None),
        LOG.static(KEY, 9, s="\u2028"),
        LOG.delete(KEY, ROW, 9),
        LOG.delete_partition(KEY, 9),
        replace(LOG.update(KEY, ROW, 9, n=1), op=Op.READ),
        Change(op=Op.TRUNCATE, table=WIDE, token=0, key=None, deletion=Deletion(5, 5), digest=bytes(16),
               source=with_source(LOG.delete_partition(KEY, 9)).source, upto=Position(0, 1, 5)),
    ],
)  # fmt: skip
def test_what_is_of_the_plain_schema_is_cut_out(change: Change) -> None:
    assert as_records(change, WIDE) == [True, True]
    assert as_records(change, WIDE, None) == [True, True]


@pytest.mark.parametrize(
    "change",
    [
        LOG.insert(KEY, ROW, 9, sold=LAST_MS + 1),
        LOG.insert(KEY, (LAST_MS + 1, "d"), 9),
        LOG.insert((1, "b", LAST_DAY + 1), ROW, 9),
        LOG.delete_range(KEY, (5,), (6,), 9),
    ],
    ids=["a timestamp", "a row's timestamp", "a partition's date", "a range"],
)
def test_what_readers_of_logical_types_may_not_take_is_written_anew(change: Change) -> None:
    assert as_records(change, WIDE) == [False, False]


@pytest.mark.promise("avro.compatible")
def test_a_message_of_another_schema_is_not_cut() -> None:
    change = LOG.insert(KEY, ROW, 9, n=1)
    message = Encoder(WIDE, PREFIX).value(change)
    splice = Splice(WIDE, PREFIX, "partition")
    assert splice.knows(message, change)
    others = (
        b"",
        b"\x00" + message[6:],
        FRAME + bytes(8) + message[10:],
        Encoder(WIDE, "another").value(change),
        Encoder(WIDE, PREFIX, "partition", ValueForms(timestamps="logical")).value(change),
    )
    assert [splice.knows(other, change) for other in others] == [False] * len(others)


@pytest.mark.slow
@given(row_changes(), assignments)
def test_rows_of_any_times_and_elements(change: Change, assignment: Assignment | None) -> None:
    if change.marker is None and change.deletion is None and not change.cells and not change.column_deletions:
        return
    as_records(with_source(replace(change, digest=bytes(16))), PLAIN, assignment)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_avro_has_not(name: str) -> None:
    of = NAMES[name]
    values = {column.name: "v" if column.type.kind == "text" else 7 for column in of.regular}
    as_records(Log(of).insert((5,) * len(of.partition_key), (6,) * len(of.clustering), 9, **values), of)


@pytest.mark.slow
def test_the_ends_of_all_types() -> None:
    for change in extremes():
        as_records(change, TYPES)


KINDS = (
    "ascii", "bigint", "blob", "boolean", "date", "decimal", "double", "float", "inet", "int", "smallint", "text",
    "time", "timestamp", "timeuuid", "tinyint", "uuid", "varint",
)  # fmt: skip


@pytest.mark.slow
@given(st.sampled_from(KINDS), st.binary(max_size=20))
def test_any_bytes_of_any_type(kind: str, data: bytes) -> None:
    of = table({"id": "int"}, {"c": kind}, regular={"v": kind}, keyspace="shop", name="plain")
    change = with_source(Log(of).update((1,), (), 9, v=None))
    [cell] = change.cells
    as_records(replace(change, clustering=(data,), cells=(replace(cell, value=data, expires=None),)), of)
