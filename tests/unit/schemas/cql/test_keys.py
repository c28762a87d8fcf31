"""Partition keys taken apart and put together, against cassandra-driver's routing keys, cut at every byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import join_key, split_key
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError

TEXT = CqlType("text")


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=4))
def test_composite_keys(values: list[bytes]) -> None:
    types = [TEXT] * len(values)
    # As cassandra.query.BoundStatement builds a routing key.
    data = b"".join(struct.pack(f">H{len(value)}sB", len(value), value, 0) for value in values)
    assert join_key(types, values) == data
    assert split_key(types, data) == tuple(values)
    for cut in range(len(data)):
        with pytest.raises(TruncatedError):
            split_key(types, data[:cut])
    with pytest.raises(CorruptError):
        split_key(types, data + b"\x00")


def test_a_single_column_stands_alone() -> None:
    assert split_key([TEXT], b"\x00\x01") == (b"\x00\x01",)
    assert join_key([TEXT], [b"\x00\x01"]) == b"\x00\x01"


@pytest.mark.parametrize("end", [1, 0xFF])
def test_a_bound_is_no_key(end: int) -> None:
    with pytest.raises(CorruptError):
        split_key([TEXT, TEXT], b"\x00\x00\x00\x00\x01a" + bytes((end,)))


@given(st.binary(max_size=30), st.integers(2, 4))
def test_any_bytes(data: bytes, columns: int) -> None:
    types = [TEXT] * columns
    try:
        values = split_key(types, data)
    except DecodeError:
        return
    assert join_key(types, values) == data


def test_what_makes_no_key() -> None:
    with pytest.raises(ValueError, match="2 columns, not 1"):
        join_key([TEXT, TEXT], [b"a"])
    with pytest.raises(ValueError, match="65535"):
        join_key([TEXT, TEXT], [b"a", bytes(65536)])
