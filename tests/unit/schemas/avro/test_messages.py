"""Changes to framed Avro messages and back: nothing lost, whatever the bytes; and as fastavro alone reads them."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro import PREFIX_SCHEMA, Encoder, decode, entry_from_record, schema_records
from tailrace_schemas.avro.names import cql_name
from tailrace_schemas.avro.registry import UnknownSchemaError
from tailrace_schemas.avro.schema import canonical_text, schema_id, value_schema
from tailrace_schemas.change import Bound, Change, Deletion, Op
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tests.support.every_type import (
    ENCODER,
    INSERT,
    KEY,
    SCHEMAS,
    SOURCE,
    TABLE,
    row_changes,
)
from tests.unit.spark.cassandra import Log, with_source
from tests.unit.tables import table


def ordered(change: Change) -> Change:
    """The change with its cells in one order, to compare by."""
    return replace(
        change,
        cells=tuple(sorted(change.cells, key=lambda c: (c.column.name_bytes, c.path or b""))),
        column_deletions=tuple(sorted(change.column_deletions, key=lambda c: c.column.name_bytes)),
    )


@pytest.mark.slow
@given(row_changes())
def test_every_row_change_comes_back(change: Change) -> None:
    decoded = decode(ENCODER.value(change), SCHEMAS)
    assert ordered(decoded) == ordered(change)
    assert change_digest(decoded) == change.digest


@pytest.mark.parametrize(
    "change",
    [
        Change(
            op=Op.DELETE_PARTITION, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE,
            digest=bytes(16),
        ),
        Change(
            op=Op.DELETE, table=TABLE, token=1, key=KEY, clustering=(bytes(8), b"\1"), deletion=Deletion(5, 6),
            source=SOURCE, digest=bytes(16),
        ),
        Change(
            op=Op.DELETE_RANGE, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE, digest=bytes(16),
            start=Bound((), True), end=Bound((bytes(8), b""), False),
        ),
        Change(
            op=Op.DELETE_RANGE, table=TABLE, token=1, key=KEY, deletion=Deletion(5, 6), source=SOURCE, digest=bytes(16),
            start=Bound((bytes(8),), False), end=Bound((), True),
        ),
    ],
    ids=["partition", "row", "range open at the start", "range open at the end"],
)  # fmt: skip
def test_deletions_come_back(change: Change) -> None:
    assert decode(ENCODER.value(change), SCHEMAS) == change


def test_a_clustering_column_may_have_the_name_of_a_bound_s_own_field() -> None:
    counted = table({"pk": "int"}, {"count": "int", "inclusive": "int"}, {"a": "int"})
    change = Change(
        op=Op.DELETE_RANGE, table=counted, token=1, key=bytes(4), deletion=Deletion(5, 6), source=SOURCE,
        digest=bytes(16),
        start=Bound((b"\0\0\0\7",), False), end=Bound((b"\0\0\0\7", b"\0\0\0\5"), True),
    )  # fmt: skip
    encoder = Encoder(counted, "t")
    fields = {field["name"]: field for field in json.loads(encoder.schema_text)["fields"]}
    start = fields["range"]["type"][1]["fields"][0]
    names = [field["name"] for field in start["type"]["fields"]]
    assert names == ["_x63_ount", "_x69_nclusive", "count", "inclusive"]  # Java's parser refuses a name twice
    assert [cql_name(name) for name in names[:2]] == ["count", "inclusive"]
    entries = {key: entry_from_record(key, value) for key, value in schema_records(encoder, "t.ks.t")}
    assert decode(encoder.value(change), entries) == change


def _read(message: bytes, schema: dict[str, object]) -> dict[str, object]:
    buffer = io.BytesIO(message)
    buffer.seek(10)
    record = fastavro.schemaless_reader(buffer, fastavro.parse_schema(schema), None)
    assert isinstance(record, dict)
    return record


def test_fastavro_reads_what_the_contract_says() -> None:
    """The record as an independent reader with the published schema sees it."""
    record = _read(ENCODER.value(INSERT), json.loads(SCHEMAS[ENCODER.schema_id].avro))
    assert (record["op"], record["token"], record["written"], record["ttl"], record["expires"]) == (
        "insert", -9, 1000, None, None,
    )  # fmt: skip
    assert record["key"] == {"pk": 7, "who": "me", "ck": 1700000000000, "n": "5"}
    assert record["deleted"] == ["d"]
    columns = record["columns"]
    assert isinstance(columns, dict)
    written = {name: value for name, value in columns.items() if value is not None}
    assert written == {
        "a": 42,
        "b": "téxt",
        "e": "5",
        "m": {
            "deleted_at": 999,
            "set": [{"path": b"key", "key": "key", "value": [1]}],
            "removed": [{"path": b"old", "key": "old"}],
        },
        "p": {"deleted_at": None, "set": {"street": None, "zip": 7, "tags": None}, "removed": ["street"]},
    }
    assert record["raw"] == [
        {"column": "e", "path": None, "where": "value", "bytes": b"\0\x05"},
        {"column": "z", "path": None, "where": "value", "bytes": b""},
    ]
    assert record["cells"] == [
        {"column": "m", "path": None, "written": 999, "ttl": None, "expires": 1700000000},
        {"column": "b", "path": None, "written": 2000, "ttl": 60, "expires": 1700000060},
        {"column": "d", "path": None, "written": 1000, "ttl": None, "expires": 1700000000},
        {"column": "m", "path": b"old", "written": 1000, "ttl": None, "expires": 1700000000},
        {"column": "p", "path": b"\0\x00", "written": 1000, "ttl": None, "expires": 1700000000},
    ]


def test_the_prefix_schema_reads_the_head_of_any_record() -> None:
    record = _read(ENCODER.value(INSERT), json.loads(PREFIX_SCHEMA))
    assert record == {"op": "insert", "token": -9, "written": 1000, "ttl": None, "expires": None, "digest": b"d" * 16}


@pytest.mark.parametrize(
    ("column_type", "value"),
    [
        ("frozen<map<int, text>>", [{"key": 1, "value": "a"}]),
        ("frozen<tuple<int, int>>", {"f0": 1, "f1": 2}),
        ("frozen<list<frozen<tuple<int, int>>>>", [{"f0": 1, "f1": 2}]),
    ],
)
def test_an_alter_leaves_messages_readable_by_the_schema_of_each_other(column_type: str, value: object) -> None:
    """As a registry's rules ask: records resolve by their names, which are the column's own."""
    narrow = table({"k": "int"}, regular={"b": column_type}, keyspace="shop")
    wide = table({"k": "int"}, regular=dict.fromkeys("abc", column_type), keyspace="shop")
    for before, after in ((narrow, wide), (wide, narrow)):
        change = with_source(Log(before).insert((1,), (), 10, b=value), host="a", position=Position(0, 1, 9))
        buffer = io.BytesIO(Encoder(before, "p").value(change))
        buffer.seek(10)
        written, asked_for = (fastavro.parse_schema(value_schema(of, "p")) for of in (before, after))
        record: Any = fastavro.schemaless_reader(buffer, written, asked_for)
        assert record["columns"]["b"] == value


def test_keys_hold_the_partition_key() -> None:
    message = ENCODER.key(INSERT)
    assert message is not None
    assert message[2:10] == ENCODER.key_schema_id
    assert _read(message, json.loads(SCHEMAS[ENCODER.key_schema_id].avro)) == {"pk": 7, "who": "me"}


def test_schemas_are_one_per_shape() -> None:
    """Comments, options and the cdc flag don't count; names, types and dropped columns do."""
    same = replace(TABLE, cdc=False)
    assert schema_id(canonical_text(value_schema(same, "app.cdc"))) == ENCODER.schema_id
    for other in (replace(TABLE, dropped=()), replace(TABLE, regular=TABLE.regular[1:]), replace(TABLE, static=())):
        assert schema_id(canonical_text(value_schema(other, "app.cdc"))) != ENCODER.schema_id


def test_every_cut_of_a_message_is_a_decode_error() -> None:
    message = ENCODER.value(INSERT)
    for size in range(len(message)):
        with pytest.raises((DecodeError, UnknownSchemaError)):
            decode(message[:size], SCHEMAS)


@pytest.mark.slow
@given(st.integers(10, 10_000), st.integers(0, 7))
def test_a_flipped_bit_is_a_value_or_a_decode_error(at: int, bit: int) -> None:
    message = bytearray(ENCODER.value(INSERT))
    message[10 + (at - 10) % (len(message) - 10)] ^= 1 << bit
    with contextlib.suppress(DecodeError):
        decode(bytes(message), SCHEMAS)


def test_no_two_types_share_a_name_even_when_columns_ask_for_it() -> None:
    """Columns and user types that want the names of the record's own types get others; the schema still parses."""
    awkward = table(
        {"Key": "int"},
        {"Change": "int"},
        None,
        {"Cell": "map<int, int>", "Cell_edit": "list<int>", "Raw": "frozen<tuple<int, int>>"},
    )
    schema = value_schema(awkward, "p")
    names: list[str] = []

    def walk(node: object) -> None:
        if isinstance(node, dict):
            if node.get("type") in ("record", "enum", "fixed"):
                names.append(str(node["name"]))
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(schema)
    assert len(names) == len(set(names))
    fastavro.parse_schema(schema)
