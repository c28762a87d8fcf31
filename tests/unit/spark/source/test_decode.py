"""Records to pieces: decoded, cut by number and size, poison set aside."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.streams import Assignment
from tailrace_spark.source.decode import pieces
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.published import entry_of, records_of
from tests.unit.tables import table

STREAM = bytes(15) + b"\x01"
PLAIN = table({"id": "int"}, regular={"v": "text"})
ENCODER = Encoder(PLAIN, "t")
SCHEMAS = {
    ENCODER.schema_id: entry_of(ENCODER, "t.ks.t", 5),
    ENCODER.key_schema_id: SchemaEntry(
        schema_id=ENCODER.key_schema_id, topic="t.ks.t", table=PLAIN, avro=ENCODER.key_schema_text, part="key"
    ),
}


def records(*values: bytes | None) -> pa.Table:
    count = len(values)
    streams = {
        "generation": pa.array([7] * count, pa.int64()),
        "stream_id": pa.array([None, *[STREAM] * (count - 1)], pa.binary()),
    }
    return records_of("t.ks.t", values, **streams)


def test_changes_come_out_with_their_places() -> None:
    """A truncation, which has no key, too: sinks say what they make of it."""
    rows = [Log(PLAIN).insert((number,), (), 10, v=str(number)) for number in range(2)]
    changes = [*rows, truncate(PLAIN, "a", 1000)]
    [piece] = pieces(records(*map(ENCODER.value, changes)), SCHEMAS)
    assert [delivered.change for delivered in piece.changes] == changes
    assert [delivered.record_id.offset for delivered in piece.changes] == [0, 1, 2]
    assert [delivered.assignment for delivered in piece.changes] == [None, Assignment(7, STREAM), Assignment(7, STREAM)]
    assert {delivered.announced for delivered in piece.changes} == {5}
    assert piece.dead_letters == ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no room"),
        (b"", "no room"),
        (b"hello, this is no change", "starts with"),
        (b"\xc3\x01" + b"\xee" * 20, "not published"),
        (ENCODER.value(Log(PLAIN).insert((1,), (), 1, v="a"))[:-3], "ends early"),
        (ENCODER.key(Log(PLAIN).insert((1,), (), 1, v="a")), "of keys"),
    ],
)
def test_what_is_no_change_is_set_aside(value: bytes | None, reason: str) -> None:
    good = ENCODER.value(Log(PLAIN).insert((1,), (), 1, v="a"))
    [piece] = pieces(records(good, value, good), SCHEMAS)
    assert len(piece.changes) == 2
    [letter] = piece.dead_letters
    assert letter.record_id.offset == 1
    assert reason in letter.reason
    assert letter.message == (value or b"")


def test_pieces_are_cut_by_size_and_number() -> None:
    small = [ENCODER.value(Log(PLAIN).insert((number,), (), 1, v="x")) for number in range(10)]
    assert [len(piece.changes) for piece in pieces(records(*small), SCHEMAS, most_records=4)] == [4, 4, 2]
    by_size = pieces(records(*small), SCHEMAS, most_records=4, most_bytes=3 * len(small[0]))
    assert [len(piece.changes) for piece in by_size] == [3, 3, 3, 1]
