"""Pages of rows: every value comes back, and bytes that are cut or go on are an error."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import DecodeError
from tailrace_spark.snapshot.page import read_columns, read_lengths
from tests.unit.spark.snapshot.pages import page_of

Row = tuple[bytes | None, ...]


@pytest.mark.slow
@given(st.integers(1, 5).flatmap(lambda width: st.lists(st.tuples(*[st.none() | st.binary(max_size=9)] * width))))
def test_values_come_back_by_column(rows: list[Row]) -> None:
    width = len(rows[0]) if rows else 3
    assert list(zip(*read_columns(page_of(rows), width), strict=True)) == rows
    lengths = [-1 if value is None else len(value) for row in rows for value in row]
    assert read_lengths(page_of(rows), width) == struct.pack(f"<{len(lengths)}i", *lengths)


@pytest.mark.parametrize("read", [read_columns, read_lengths])
def test_a_page_that_is_cut_anywhere_or_goes_on_is_an_error(read: Callable[[bytes, int], object]) -> None:
    data = page_of([(b"ab", None, b""), (None, b"c" * 20, b"d")])
    for size in range(len(data)):
        with pytest.raises(DecodeError):
            read(data[:size], 3)
    for longer in (data + b"\0", page_of([(b"",) * 4])):
        with pytest.raises(DecodeError):
            read(longer, 3)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff" + bytes(8)])
@pytest.mark.parametrize("read", [read_columns, read_lengths])
def test_an_impossible_number_of_rows_is_an_error(read: Callable[[bytes, int], object], data: bytes) -> None:
    with pytest.raises(DecodeError, match="a page of"):
        read(data, 1)
