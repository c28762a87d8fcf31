"""Names in a lake: told apart without case, reversible, and the same whatever comes later."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.avro.names import avro_name, cql_name
from tailrace_spark.sinks.arrow.types import relabelled
from tailrace_spark.sinks.lake.names import distinct, names_of
from tests.support.history_records import source_names

names = st.lists(st.text("aAbB_x1 é", max_size=4), unique=True, max_size=6)


def schema(*columns: str) -> pa.Schema:
    return pa.schema([pa.field(avro_name(name), pa.int32()) for name in columns])


@given(names)
def test_names_are_told_apart_without_case_and_tell_the_source_s(columns: list[str]) -> None:
    found = distinct(schema(*columns), {}).names
    assert len({name.lower() for name in found}) == len(columns)
    assert [cql_name(name) for name in found] == columns
    assert source_names(distinct(schema(*columns), {})).names == schema(*columns).names


@pytest.mark.slow
@pytest.mark.promise("lake.names")
@given(names, names)
def test_a_name_stays_whatever_comes_later(first: list[str], second: list[str]) -> None:
    before = distinct(schema(*first), {})
    later = sorted({*first, *second})
    after = distinct(schema(*later), names_of(before))
    mine = dict(zip(later, after.names, strict=True))
    assert [mine[name] for name in first] == before.names
    assert distinct(schema(*later), names_of(after)).names == after.names


def test_a_name_stays_when_one_comes_that_differs_by_case() -> None:
    before = distinct(schema("v"), {})
    assert distinct(schema("V", "v"), names_of(before)).names == ["_x56_", "v"]


def test_fields_are_told_apart_at_every_depth() -> None:
    inner = pa.struct([("F", pa.int32()), ("f", pa.int32())])
    wanted = pa.schema([("u", pa.list_(pa.struct([("key", inner), ("value", inner)])))])
    found = distinct(wanted, {})
    assert names_of(found) == {"u": {part: {"F": {}, "_x66_": {}} for part in ("key", "value")}}
    other = pa.schema([("u", pa.list_(pa.struct([("key", pa.struct([("f", pa.int32())])), ("value", inner)])))])
    assert names_of(distinct(other, names_of(found)))["u"]["key"] == {"_x66_": {}}
    array = pa.array([[{"key": {"F": 1, "f": 2}, "value": None}], None], wanted.field("u").type)
    assert relabelled(array, found.field("u").type).to_pylist() == [
        [{"key": {"F": 1, "_x66_": 2}, "value": None}],
        None,
    ]


def test_the_ends_of_a_range_keep_what_is_ours() -> None:
    bound = pa.struct([("Count", pa.int32()), ("count", pa.int32()), ("inclusive", pa.bool_())])
    found = distinct(pa.schema([("range", pa.struct([("start", bound)]))]), {})
    assert names_of(found)["range"]["start"] == {"_x43_ount": {}, "count": {}, "inclusive": {}}
