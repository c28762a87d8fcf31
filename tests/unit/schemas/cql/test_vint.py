"""vints against the format's own table, Cassandra driver's coding, and every cut."""

from __future__ import annotations

import pytest
from cassandra import marshal
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_schemas.errors import TruncatedError

UNSIGNED = [
    (0, "00"),
    (127, "7f"),
    (128, "8080"),
    (16383, "bfff"),
    (16384, "c04000"),
    (2097152, "e0200000"),
    (268435456, "f010000000"),
    ((1 << 56) - 1, "feffffffffffffff"),
    (1 << 56, "ff0100000000000000"),
    ((1 << 64) - 1, "ffffffffffffffffff"),
]
SIGNED = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (64, "8080"),
    ((1 << 63) - 1, "fffffffffffffffffe"),
    (-(1 << 63), "ffffffffffffffffff"),
]


@pytest.mark.parametrize(("value", "text"), UNSIGNED)
def test_unsigned_table(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert write_unsigned(value) == data
    assert read_unsigned(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))
    for cut in range(len(data)):
        with pytest.raises(TruncatedError):
            read_unsigned(data[:cut], 0)


@pytest.mark.parametrize(("value", "text"), SIGNED)
def test_signed_table(value: int, text: str) -> None:
    data = bytes.fromhex(text)
    assert write_signed(value) == data
    assert read_signed(data, 0) == (value, len(data))


@pytest.mark.parametrize("text", ["8005", "c00005", "ff0000000000000005"])
def test_longer_forms_are_read(text: str) -> None:
    data = bytes.fromhex(text)
    assert read_unsigned(data, 0) == (5, len(data))


@pytest.mark.parametrize("at", [-1, 1, 7])
def test_offsets_outside_the_bytes(at: int) -> None:
    with pytest.raises(TruncatedError):
        read_unsigned(b"\x05", at)


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_unsigned_limits(value: int) -> None:
    with pytest.raises(ValueError, match="vint holds"):
        write_unsigned(value)


@pytest.mark.parametrize("value", [-(1 << 63) - 1, 1 << 63])
def test_signed_limits(value: int) -> None:
    with pytest.raises(ValueError, match="vint holds"):
        write_signed(value)


@given(st.integers(0, (1 << 64) - 1))
def test_unsigned_as_the_driver_writes_it(value: int) -> None:
    data = write_unsigned(value)
    assert data == marshal.uvint_pack(value)
    assert read_unsigned(data, 0) == (value, len(data))


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_signed_as_the_driver_writes_it(value: int) -> None:
    data = write_signed(value)
    assert data == marshal.vints_pack((value,))
    assert read_signed(data, 0) == (value, len(data))
