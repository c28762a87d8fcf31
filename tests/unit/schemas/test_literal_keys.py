"""Partition keys as people write them, against cassandra-driver's own serialization."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest

from tailrace_schemas.cql.types import parse_type
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.literal_keys import serialized_key
from tailrace_schemas.table import Column, ColumnKind, Table
from tests.unit.schemas.cql.driver import to_bytes

UUID_TEXT = "550e8400-e29b-41d4-a716-446655440000"
TIMEUUID_TEXT = "7a370e64-819f-11eb-8419-1f717873d8fa"
ONE: list[tuple[str, str, object]] = [
    ("int", "-1", -1),
    ("int", " 7 ", 7),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("smallint", "-2", -2),
    ("tinyint", "5", 5),
    ("varint", "123456789012345678901234567890", 123456789012345678901234567890),
    ("decimal", "-1.50", Decimal("-1.50")),
    ("double", "2.5", 2.5),
    ("float", "-0.25", -0.25),
    ("boolean", "TRUE", True),
    ("text", "café", "café"),
    ("text", "'it''s'", "it's"),
    ("text", "a, b", "a, b"),
    ("text", "'", "'"),
    ("text", "", ""),
    ("ascii", "'x'", "x"),
    ("blob", "0x00fF10", b"\x00\xff\x10"),
    ("uuid", UUID_TEXT.upper(), UUID(UUID_TEXT)),
    ("timeuuid", TIMEUUID_TEXT, UUID(TIMEUUID_TEXT)),
    ("inet", "'10.0.0.1'", "10.0.0.1"),
    ("inet", "::1", "::1"),
    ("timestamp", "1760000000123", 1_760_000_000_123),
    ("timestamp", "'2025-10-09T08:53:20.123+00:00'", datetime(2025, 10, 9, 8, 53, 20, 123_000, UTC)),
    ("timestamp", "2025-10-09T10:53:20+02:00", datetime(2025, 10, 9, 8, 53, 20, 0, UTC)),
    ("date", "2025-10-09", date(2025, 10, 9)),
    ("time", "08:53:20.000001", time(8, 53, 20, 1)),
    ("time", "'08:53:20.123456789'", "08:53:20.123456789"),
    ("time", "8:53:20.5", time(8, 53, 20, 500_000)),
]


def table(*types: str) -> Table:
    """A table whose partition key has these types."""
    columns = (
        Column(f"c{n}", f"c{n}".encode(), ColumnKind.PARTITION_KEY, parse_type(kind), position=n)
        for n, kind in enumerate(types)
    )
    return Table(keyspace="shop", name="orders", id=UUID(int=1), partition_key=tuple(columns))


def driver(kind: str, value: object) -> bytes:
    """What cassandra-driver sends."""
    return to_bytes(parse_type(kind), value)


@pytest.mark.parametrize(("kind", "text", "value"), ONE)
def test_a_key_of_one_column(kind: str, text: str, value: object) -> None:
    assert serialized_key(text, table(kind)) == driver(kind, value)


@pytest.mark.parametrize(
    ("types", "text", "values"),
    [
        (["int", "int"], "143, 234", [143, 234]),
        (["int", "text"], "1,'a, ''b'' c'", [1, "a, 'b' c"]),
        (["text", "blob", "text"], "plain , 0x01, ''", ["plain", b"\x01", ""]),
    ],
)
def test_a_key_of_several_columns(types: list[str], text: str, values: Sequence[object]) -> None:
    parts = [driver(kind, value) for kind, value in zip(types, values, strict=True)]
    expected = b"".join(len(part).to_bytes(2, "big") + part + b"\0" for part in parts)
    assert serialized_key(text, table(*types)) == expected


def test_bytes_are_taken_as_they_are() -> None:
    assert serialized_key("0x0000007B", None) == serialized_key("0x0000007b", table("text")) == b"\0\0\0\x7b"
    assert serialized_key("0x", None) == b""


@pytest.mark.parametrize(
    ("types", "text", "words"),
    [
        (None, "7", "give --table KEYSPACE.TABLE"),
        (["int", "int"], "7", "1 values; shop.orders has the partition key (c0, c1)"),
        (["int", "text"], "7, 'open", "a quote is open"),
        (["int", "text"], "7, 'a'b", "a quote is open, or stands within a value"),
        (["int"], "x", "c0 is int: "),
        (["int"], "2147483648", "c0 is int: "),
        (["uuid"], "7", "c0 is uuid: "),
        (["blob"], "7", "'7' is no blob"),
        (["boolean"], "1", "'1' is neither true nor false"),
        (["timestamp"], "yesterday", "c0 is timestamp: "),
        (["timestamp"], "2025-10-09T08:53:20.1234Z", "c0 is timestamp: "),
        (["time"], "08:53:20+02:00", "c0 is time: "),
        (["time"], "08:53:20.1234567890", "c0 is time: "),
        (["time"], "24:00:00", "c0 is time: "),
        (["frozen<list<int>>"], "[1]", "give the whole key as 0x and its bytes"),
    ],
)
def test_what_is_no_key_is_named(types: list[str] | None, text: str, words: str) -> None:
    with pytest.raises(SettingsError) as raised:
        serialized_key(text, None if types is None else table(*types))
    assert f"key {text!r}: " in str(raised.value)
    assert words in str(raised.value)
