"""The columns of a page by numpy, held against those made of an object for each value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType
from tailrace_spark.sinks.arrow.change_columns import AS_BYTES
from tailrace_spark.sinks.arrow.values import SIZES, Odd, array_of, either, fixed_array, text_array
from tailrace_spark.snapshot.page_arrays import PageArrays
from tests.unit.spark.snapshot.pages import columns_page

KINDS = sorted(AS_BYTES)
COLUMN = st.lists(st.none() | st.binary(max_size=17) | st.sampled_from([bytes(size) for size in (1, 2, 4, 8, 16)]))
NUMBERS = {pa.float32(): pa.int32(), pa.float64(): pa.int64(), pa.date32(): pa.int32()}


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
