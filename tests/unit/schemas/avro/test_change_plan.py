"""Messages to changes by a plan: the same changes, and the same errors, as by way of their Avro records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.avro import Encoder, SchemaEntry, entry_from_record, schema_records
from tailrace_schemas.avro.change_plan import ChangePlan
from tailrace_schemas.avro.decode import Reader
from tailrace_schemas.avro.frames import body_at
from tailrace_schemas.avro.schema import canonical_text, layout, value_schema
from tailrace_schemas.change import Cell, Change, Deletion, Marker, Op, Origin
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.forms import ValueForms
from tests.properties import examples
from tests.support.every_type import ENCODER, INSERT, SCHEMAS, SOURCE, TABLE, row_changes
from tests.unit.schemas.cql.driver import to_bytes, typed_values
from tests.unit.tables import table

READER = Reader(SCHEMAS[ENCODER.schema_id])
PLAN = ChangePlan(TABLE)
PLAIN = table(
    {"id": "uuid"},
    {"at": "timestamp", "word": "text"},
    {"total": "bigint"},
    {"a": "int", "b": "text", "c": "double", "d": "boolean", "e": "frozen<list<int>>", "f": "date", "g": "decimal"},
)
PLAIN_KEY = bytes(range(16))
WRITTEN = 1_760_000_000_000_000


def entry_of(encoder: Encoder) -> SchemaEntry:
    """The writer schema of an encoder's messages."""
    entries = (entry_from_record(key, value) for key, value in schema_records(encoder, "app.cdc.ks.t"))
    return next(entry for entry in entries if entry.schema_id == encoder.schema_id)


def outcome(decode: Any, message: bytes) -> object:
    """A change, or the class and words of what was raised."""
    try:
        return decode(message)
    except DecodeError as error:
        return type(error), str(error)


def by_record(reader: Reader, message: bytes) -> Change:
    """The way by fastavro, which every message may go."""
    return reader.change(reader.record(message))


def plain_change(values: Mapping[str, bytes | None] = MappingProxyType({}), op: Op = Op.INSERT) -> Change:
    """A change of a row of PLAIN, by all its columns; None is a tombstone."""
    cells = tuple(
        Cell(column, None, WRITTEN, None, None if values[column.name] is not None else 7, values[column.name])
        for column in PLAIN.regular
        if column.name in values
    )
    return Change(
        op=op,
        table=PLAIN,
        token=-(2**63),
        key=PLAIN_KEY,
        clustering=((5).to_bytes(8, "big"), "wört".encode()),
        marker=Marker(WRITTEN) if op is Op.INSERT else None,
        deletion=Deletion(WRITTEN, 7) if op is Op.DELETE else None,
        cells=cells,
        source=replace(SOURCE, origin=Origin.REPLAY, durable=False, flags=3),
        digest=bytes(16),
    )


VALUES = {
    "a": b"\xff\xff\xff\xfe", "b": "téxt".encode(), "c": bytes.fromhex("7ff0000000000001"), "d": b"\1",
    "e": bytes.fromhex("00000002 00000004 00000007 ffffffff"), "f": bytes.fromhex("80000001"),
    "g": bytes.fromhex("00000002 0f"),
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        plain_change(VALUES),
        plain_change({"a": None, "b": VALUES["b"], "f": None}, Op.UPDATE),
        plain_change(op=Op.DELETE),
        replace(plain_change({"a": VALUES["a"]}, Op.UPDATE), op=Op.READ),
        replace(plain_change(), clustering=None, op=Op.DELETE_PARTITION, marker=None, deletion=Deletion(5, 6)),
        replace(
            plain_change(op=Op.UPDATE),
            clustering=None,
            static=True,
            cells=(Cell(PLAIN.static[0], None, WRITTEN, 60, 2_000_000_000, bytes(8)),),
        ),
        replace(
            plain_change(), cells=(Cell(PLAIN.regular[0], None, WRITTEN + 1, 60, 2_000_000_000, VALUES["a"]),)
        ),
    ],
    ids=["insert", "update", "delete", "read", "partition", "static", "times"],
)  # fmt: skip
def test_plain_changes_go_by_the_plan(change: Change) -> None:
    encoder = Encoder(PLAIN, "app.cdc")
    message = encoder.value(change)
    assert ChangePlan(PLAIN).change(message, body_at(message)) == change
    assert by_record(Reader(entry_of(encoder)), message) == change


@pytest.mark.slow
@given(row_changes())
@settings(max_examples=examples(20))
def test_it_decodes_as_the_record_does(change: Change) -> None:
    message = ENCODER.value(change)
    planned = PLAN.change(message, body_at(message))
    assert planned is None or planned == by_record(READER, message)
    assert READER.decode(message) == by_record(READER, message)


@pytest.mark.slow
@given(typed_values())
@settings(max_examples=examples(20))
def test_values_of_all_types_have_the_same_bytes(typed: tuple[CqlType, Any]) -> None:
    cql_type, value = typed
    data = to_bytes(cql_type, value)
    of = table({"id": "int"}, regular={"v": "int"})
    of = replace(of, regular=(replace(of.regular[0], type=cql_type),))
    change = Change(
        op=Op.UPDATE,
        table=of,
        token=1,
        key=bytes(4),
        clustering=(),
        cells=(Cell(of.regular[0], None, 5, None, None, data),),
        source=SOURCE,
        digest=bytes(16),
    )
    encoder = Encoder(of, "app.cdc")
    message = encoder.value(change)
    reader = Reader(entry_of(encoder))
    planned = ChangePlan(of).change(message, body_at(message))
    assert planned is None or planned == by_record(reader, message)
    assert planned is not None or reader.record(message)["raw"] is not None


@given(st.integers(10, 10_000), st.integers(0, 255))
@pytest.mark.parametrize("change", [INSERT, replace(INSERT, cells=INSERT.cells[:3], column_deletions=())])
def test_a_changed_byte_gives_the_same_change_or_the_same_error(change: Change, at: int, byte: int) -> None:
    message = bytearray(ENCODER.value(change))
    message[10 + (at - 10) % (len(message) - 10)] = byte
    damaged = bytes(message)
    assert outcome(READER.decode, damaged) == outcome(lambda octets: by_record(READER, octets), damaged)


def test_every_cut_gives_the_same_error() -> None:
    encoder = Encoder(PLAIN, "app.cdc")
    reader = Reader(entry_of(encoder))
    message = encoder.value(plain_change(VALUES))
    for size in range(10, len(message)):
        assert ChangePlan(PLAIN).change(message[:size], 10) is None
        assert outcome(reader.decode, message[:size]) == outcome(lambda cut: by_record(reader, cut), message[:size])


def test_calendars_are_the_same_bytes() -> None:
    assert layout(value_schema(PLAIN, "p", ValueForms(timestamps="logical"))) == layout(value_schema(PLAIN, "p"))
    assert layout(value_schema(PLAIN, "p", outward=True)) == layout(value_schema(PLAIN, "p"))


def test_a_schema_with_one_field_more_is_read_by_its_own_words() -> None:
    """As later agents may write a source."""
    encoder = Encoder(PLAIN, "app.cdc")
    schema: Any = json.loads(encoder.schema_text)
    source = next(field["type"] for field in schema["fields"] if field["name"] == "source")
    source["fields"].append({"name": "more", "type": "long"})
    later = replace(entry_of(encoder), avro=canonical_text(schema))
    change = plain_change(VALUES)
    assert Reader(later).decode(encoder.value(change) + b"\x02") == change


def test_a_table_with_counters_is_decoded_by_its_records() -> None:
    of = table({"id": "int"}, regular={"hits": "counter"})
    shard = bytes.fromhex("00018000") + bytes(32)
    change = Change(
        op=Op.UPDATE, table=of, token=1, key=bytes(4), clustering=(), source=SOURCE, digest=bytes(16),
        cells=(Cell(of.regular[0], None, 5, None, None, shard),),
    )  # fmt: skip
    encoder = Encoder(of, "app.cdc")
    message = encoder.value(change)
    assert ChangePlan(of).change(message, body_at(message)) is None
    assert Reader(entry_of(encoder)).decode(message) == change
