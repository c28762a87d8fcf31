"""Pages as Arrow: each value is in its column, or exact in `raw`; NULL and empty are told apart."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.arrow.change_columns import AS_BYTES
from tailrace_spark.sinks.arrow.values import SIZES, Odd, array_of, either, fixed_array, text_array
from tailrace_spark.snapshot.rows import PageArrays, RowColumns
from tailrace_spark.snapshot.selection import Selected, columns_of, selection
from tests.unit.spark.sinks.hostile import EXTREMES, TYPES
from tests.unit.spark.snapshot.pages import columns_page
from tests.unit.tables import table

LONGS, INTS = (CqlType("list", (CqlType(kind),), frozen=True) for kind in ("bigint", "int"))
KINDS = sorted(AS_BYTES)
COLUMN = st.lists(st.none() | st.binary(max_size=17) | st.sampled_from([bytes(size) for size in (1, 2, 4, 8, 16)]))
NUMBERS = {pa.float32(): pa.int32(), pa.float64(): pa.int64(), pa.date32(): pa.int32()}


def shape_of(of: Table, *names: str, details: bool = True, prefix: str = "") -> RowColumns:
    picked = selection(columns_of(of, names or None), (5, 0), times=details)
    return RowColumns(picked, details, prefix)


def rows(shape: RowColumns, columns: list[list[bytes | None]]) -> list[dict[str, Any]]:
    batch = shape.batch(columns_page(columns))
    batch.validate(full=True)
    shown: list[dict[str, Any]] = batch.to_pylist()
    return shown


@pytest.mark.parametrize("name", [column.name for column in TYPES.regular])
def test_every_value_is_in_its_column_or_exact_in_raw(name: str) -> None:
    form, _, kind = name.partition("_")
    [column] = columns_of(TYPES, [name])
    values: list[bytes | None] = [None]
    for value in EXTREMES[kind]:
        counted = struct.pack(">i", len(value)) + value
        count = struct.pack(">i", 1)
        values.append({"c": value, "l": count + counted, "m": count + counted + counted}[form])
    shape = RowColumns((Selected(column),))
    for data, row in zip(values, rows(shape, [values]), strict=True):
        exact = dict(row["raw"] or ())
        if data is None:
            assert (row[name], exact) == (None, {})
        elif name in exact:
            assert (row[name], exact[name]) == (None, data)
        else:
            assert row[name] is not None
            if kind in ("text", "int", "blob", "varint", "decimal", "uuid", "inet", "bigint", "duration"):
                assert codec(column.type).encode(row[name]) == data


def test_empty_and_null_are_told_apart() -> None:
    shape = shape_of(table({"k": "int"}, regular={"t": "text", "v": "int"}), "t", "v", details=False)
    with_raw = RowColumns(shape.selected)
    batch_rows = rows(with_raw, [[b"", None], [b"", None]])
    assert batch_rows == [{"t": "", "v": None, "raw": [("v", b"")]}, {"t": None, "v": None, "raw": None}]


def test_write_times_and_ttls_are_beside_the_values() -> None:
    of = table({"k": "int"}, regular={"s": "set<int>", "v": "int"})
    shape = shape_of(of)
    first, second = struct.pack(">i", 1), struct.pack(">i", 2)
    batch_rows = rows(
        shape,
        [
            [first], [codec(INTS).encode([1, 2])], [second],
            [codec(LONGS).encode([10, 20])], [struct.pack(">q", 30)],
            [codec(INTS).encode([None, 60])], [None],
        ],
    )  # fmt: skip
    assert batch_rows == [
        {
            "k": 1,
            "s": [1, 2],
            "v": 2,
            "writetime": {"s": [10, 20], "v": 30},
            "ttl": {"s": [None, 60], "v": None},
            "raw": None,
        }
    ]


def test_counters_are_numbers() -> None:
    shape = shape_of(table({"k": "int"}, regular={"n": "counter"}), "n")
    assert rows(shape, [[struct.pack(">q", -7), None]]) == [{"n": -7, "raw": None}, {"n": None, "raw": None}]


def test_a_table_that_has_such_columns_itself_needs_a_prefix() -> None:
    of = table({"k": "int"}, regular={"ttl": "int", "raw": "text"})
    with pytest.raises(SettingsError, match="has a column 'raw' itself: give detail_prefix"):
        shape_of(of)
    assert shape_of(of, prefix="cql_").schema.names == ["k", "raw", "ttl", "cql_writetime", "cql_ttl", "cql_raw"]
    assert shape_of(of, details=False).schema.names == ["k", "raw", "ttl"]


def test_a_page_without_rows_has_the_schema() -> None:
    shape = shape_of(TYPES)
    empty: list[list[bytes | None]] = [[] for _ in shape.selected]
    assert shape.batch(columns_page(empty)).schema == shape.schema


def bits(array: Any, odd: Odd) -> tuple[Any, list[Any]]:
    """What tells an array from another one: NaN is no number, and some dates are none of Python's."""
    of = pa.int64() if pa.types.is_timestamp(array.type) else NUMBERS.get(array.type, array.type)
    hidden = [False] * len(array) if odd is None else odd.tolist()
    numbers = array.view(of).to_pylist()
    return array.type, [None if bad else number for number, bad in zip(numbers, hidden, strict=True)]


@pytest.mark.slow
@given(st.lists(COLUMN, min_size=1, max_size=4), st.sampled_from(KINDS))
def test_columns_are_those_of_their_values_one_by_one(columns: list[list[bytes | None]], kind: str) -> None:
    rows = min(map(len, columns))
    columns = [values[:rows] for values in columns]
    arrays = PageArrays(columns_page(columns))
    for index, values in enumerate(columns):
        binary = arrays.binary(index)
        assert binary.to_pylist() == values
        assert [arrays.value(index, row) for row in range(rows)] == values
        odd: Odd = None
        if kind in SIZES:
            data, other_sizes = arrays.fixed(index, SIZES[kind])
            array, odd = fixed_array(CqlType(kind), data)
            odd = either(other_sizes, odd)
        else:
            array, odd = (binary, None) if kind == "blob" else text_array(kind, binary)
        array.validate(full=True)
        expected, expected_odd = array_of(CqlType(kind), values)
        assert (odd is None) == (expected_odd is None)
        assert odd is None or expected_odd is None or odd.tolist() == expected_odd.tolist()
        assert bits(array, odd) == bits(expected, expected_odd)
