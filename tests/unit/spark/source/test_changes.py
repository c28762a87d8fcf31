"""Messages of tables that were dropped, read by the definition of the one that has their name now."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from fastavro import parse_schema, schemaless_reader

from tailrace_schemas.avro import Encoder
from tailrace_schemas.avro.frames import body_at
from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.table import Table
from tailrace_spark.source.changes import WriterForm, rewritten, unfit_columns
from tests.unit.spark.cassandra import Log
from tests.unit.spark.published import entry_of
from tests.unit.tables import ADDRESS, table

NOW = table({"id": "int"}, {"count": "text"}, {}, {"v": "text", "w": "int", "tags": "set<text>"})


def former(columns: dict[str, str], key: str = "int", count: str = "text") -> Log:
    """An earlier table of that name."""
    return Log(replace(table({"id": key}, {"count": count}, {}, columns), id=UUID(int=7)))


def unfit(written: Table, present: Table = NOW) -> frozenset[str]:
    """The columns that have another type now."""
    return unfit_columns(written, present)


def read(change: Change, present: Table = NOW) -> Any:
    """What a reader of a later definition has of a change."""
    encoder, reader = Encoder(change.table, "p"), Encoder(present, "p").schema_text
    message = rewritten(encoder.value(change), WriterForm(entry_of(encoder), present, "p"), reader)
    assert message is not None
    return schemaless_reader(io.BytesIO(message[body_at(message) :]), parse_schema(json.loads(reader)), None)


@pytest.mark.parametrize(("cql_type", "value"), [("int", 7), ("blob", b"a"), ("frozen<list<text>>", ["a"])])
def test_a_column_of_another_type_is_null_and_the_others_are_read(cql_type: str, value: object) -> None:
    """Also where Avro could promote it, as bytes to a string."""
    log = former({"v": cql_type, "w": "int", "gone": "text"})
    record = read(log.insert((1,), ("a",), 5, v=value, w=8, gone="x"))
    assert record["columns"] == {"v": None, "w": 8, "tags": None}
    assert record["key"] == {"id": 1, "count": "a"}


def test_a_key_of_another_type_is_null() -> None:
    record = read(former({"w": "int"}, key="text", count="int").insert(("one",), (2,), 5, w=8))
    assert (record["op"], record["key"], record["columns"]["w"]) == ("insert", {"id": None, "count": None}, 8)


def test_the_bounds_of_a_range_are_there_without_the_column() -> None:
    """Their own `count` is not the column of that name."""
    record = read(former({}, count="int").delete_range((1,), (3,), (9,), 5))
    assert record["range"]["start"] == {"_x63_ount": None, "count": 1, "inclusive": True}


def test_what_was_renamed_since_has_its_name_of_now() -> None:
    """Columns of the key, of which two have changed places here, and fields of user types at any depth."""
    former = table({"id": "int"}, {"c": "int"}, {}, {"a": "addr", "l": "frozen<list<addr>>"})
    address = replace(ADDRESS, field_names=("road", "zip", "tags"))
    regular = tuple(replace(of, type=parse_type(str(of.type), {"addr": address})) for of in former.regular)
    now = replace(table({"c": "int"}, {"id": "int"}), regular=regular)
    log = Log(former)

    inserted = read(log.insert((1,), (2,), 5, a={"street": "x", "zip": None}, l=[{"street": "y", "zip": 1}]), now)
    assert inserted["key"] == {"c": 1, "id": 2}
    assert inserted["columns"]["l"] == [{"road": "y", "zip": 1, "tags": None}]
    assert inserted["columns"]["a"]["set"] == {"road": "x", "zip": None, "tags": None}
    edited = read(log.update((1,), (2,), 5, a={"street": None}), now)
    assert edited["columns"]["a"]["removed"] == ["road"]
    deleted = read(log.delete_range((1,), (3,), (9,), 5), now)
    assert (deleted["range"]["start"]["id"], deleted["range"]["end"]["id"]) == (3, 9)
    odd = replace(log.insert((1,), (2,), 5), key=b"")
    assert read(odd, now)["raw"] == [{"column": "c", "path": None, "where": "key", "bytes": b""}]


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        ("int", "int", True),
        ("int", "bigint", False),
        ("set<int>", "set<text>", False),
        ("set<text>", "frozen<set<text>>", False),
        ("vector<float, 2>", "vector<float, 3>", False),
        ("frozen<map<text, addr>>", "frozen<map<text, addr>>", True),
    ],
)
def test_which_types_fit(before: str, now: str, fits: bool) -> None:
    written, present = (table({"id": "int"}, {}, {}, {"v": cql_type}) for cql_type in (before, now))
    assert unfit(written, present) == (frozenset() if fits else {"v"})
