"""Definitions at the largest sizes that Cassandra takes cost what their DDL has, not what it has written out."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry, decode, entry_from_record, own_ids, schema_records
from tailrace_schemas.change import Cell, Change, Marker, Op, Source
from tailrace_schemas.cql.types import MAX_DEPTH, CqlType, leaves, parts, user_types_in
from tailrace_schemas.cql.values import codec
from tailrace_schemas.formats import MOST_UNPACKED, json_object, packed, unpacked
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import FORMAT, table_from_json, table_to_json
from tests.support.large_types import FIELDS, nested, only
from tests.unit.tables import table as table_of


def test_a_user_type_is_one_object() -> None:
    """However often it is used; it compares, hashes and prints as what it is."""
    (plain,) = (column.type for column in only(nested(5)).columns if column.name == "plain")
    assert leaves(plain) == FIELDS**5
    assert sum(1 for _ in parts((plain,))) == 6
    (again,) = (column.type for column in only(nested(5)).columns if column.name == "plain")
    assert (plain, hash(plain), str(plain), repr(plain)) == (again, hash(again), "t4", "CqlType('t4')")
    (other,) = (column.type for column in only(nested(5, FIELDS + 1)).columns if column.name == "plain")
    assert plain != other
    assert [part.name for part in user_types_in([plain])] == ["t0", "t1", "t2", "t3", "t4"]


def test_types_that_differ_far_below() -> None:
    """Are not equal."""
    one, other = CqlType("int"), CqlType("text")
    for name in "abcdef":
        one, other = (CqlType("udt", (part, part), name=name, fields=("x", "y")) for part in (one, other))
    assert one != other
    assert hash(one) == hash(CqlType("udt", (one.args[0], one.args[1]), name="f", fields=("x", "y")))


@pytest.mark.promise("agent.large-definition")
def test_as_json() -> None:
    """A user type stands in it once, and it comes back equal, sharing what is shared."""
    wide = only(nested(5))
    text = json.dumps(table_to_json(wide))
    assert len(text) < 5000
    assert json.loads(text)["format"] == FORMAT
    back = table_from_json(json.loads(text))
    assert back == wide
    assert sum(1 for _ in parts(column.type for column in back.columns)) < 40


@pytest.mark.parametrize(
    "change",
    [
        {"types": [1]},
        {"types": [{"kind": "udt", "args": [0], "name": "t0", "fields": ["f0"]}]},
        {"types": 5},
        {"format": 1},
        {"format": 3},
        {"columns": [{"name": "k", "kind": "partition_key", "type": 7, "position": 0}]},
        {"columns": [{"name": "k", "kind": "partition_key", "type": None, "position": 0}]},
    ],
)
def test_json_that_defines_nothing(change: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TypeError)):
        table_from_json(table_to_json(only(nested(2))) | change)


def test_the_avro_schema_defines_a_user_type_once() -> None:
    """And names it from then on."""
    encoder = Encoder(only(nested(5)), "p")
    assert len(encoder.schema_text) < 20_000
    assert [encoder.schema_text.count(f'"name":"t{level}"') for level in range(5)] == [1] * 5


@pytest.mark.slow
def test_a_change_of_a_table_with_nested_types() -> None:
    """Goes there and back."""
    wide = only(nested(5))
    (plain,) = (column for column in wide.columns if column.name == "plain")
    inner = codec(plain.type.args[0])
    data = inner.encode(dict.fromkeys(plain.type.args[0].fields))
    cells = (Cell(plain, (3).to_bytes(2, "big"), 7, None, None, data),)
    change = Change(
        op=Op.INSERT, table=wide, token=1, key=b"\0\0\0\1", clustering=(), marker=Marker(7, None, None), cells=cells,
        source=Source("h", "d", Position(1, 1, 1), 0, 1), digest=bytes(16),
    )  # fmt: skip
    encoder = Encoder(wide, "p")
    entries = {key: entry_from_record(key, value) for key, value in schema_records(encoder, "p.ks.t")}
    assert decode(encoder.value(change), entries).cells == cells


@pytest.mark.promise("agent.why-no-definition")
def test_types_that_are_too_deep() -> None:
    """Keep their own table out, with the reason, and nothing overflows."""
    assert nested(MAX_DEPTH - 3).problems == ()
    (problem,) = nested(MAX_DEPTH + 1).problems
    assert (problem.id, problem.table) == (UUID(int=1), "ks.t")
    assert f"more than {MAX_DEPTH} types in one another" in problem.reason
    (problem,) = nested(5000, 1).problems
    assert "in one another" in problem.reason
    assert len(problem.reason) < 500


def wide(columns: int, length: int = 1) -> Table:
    """A table of so many columns whose names are so long."""
    return table_of({"k": "int"}, regular={f"{'x' * length}{number}": "int" for number in range(columns)})


@pytest.mark.slow
@pytest.mark.parametrize("shape", [only(nested(5)), wide(3850), wide(400, 2000)], ids=["nested", "many", "long"])
def test_the_announcement_of_a_large_table(shape: Table) -> None:
    """Is small enough for Kafka's default limit, and is read back."""
    encoder = Encoder(shape, "p")
    for key, value in schema_records(encoder, "p.ks.t"):
        assert len(value) < 1_000_000
        entry = entry_from_record(key, value)
        assert (entry.table, entry.schema_id) == (shape, key)
    ids = own_ids(encoder)
    assert isinstance(entry, SchemaEntry)
    assert (ids.value, ids.key) == tuple(key for key, _ in schema_records(encoder, "p.ks.t"))


def test_packing() -> None:
    """What is short stays as it is."""
    short, long = b'{"a": 1}', json.dumps({"a": ["x" * 100] * 10_000}).encode()
    assert packed(short) == short
    assert len(packed(long)) < 10_000
    assert unpacked(packed(long)) == long
    assert packed(long) == packed(long)
    assert json_object(packed(long)) == json.loads(long)


@pytest.mark.parametrize("cut", [2, 3, 9, 17, 18, 500, -8, -1])
def test_packed_values_that_are_damaged(cut: int) -> None:
    """Say so in one way."""
    whole = packed(json.dumps({"a": list(range(20_000))}).encode())
    with pytest.raises(ValueError, match="gzip"):
        unpacked(whole[:cut])


@pytest.mark.slow
def test_a_value_that_would_fill_the_memory() -> None:
    """Is not unpacked."""
    with pytest.raises(ValueError, match=f"more than {MOST_UNPACKED}"):
        unpacked(packed(bytes(MOST_UNPACKED + 1)))
