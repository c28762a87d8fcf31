"""Tables that stores have trouble with: to Cassandra any text is a name, and each of these values one of its type."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Cell, Change
from tailrace_schemas.cql.types import CqlType, UserTypeDefinition, parse_type
from tailrace_schemas.cql.values import codec
from tailrace_schemas.table import Column, Table
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

HEALTHY: Final = table(
    {"id": "int"}, regular={"v": "text", "w": "int"}, keyspace="shop", name="plain", table_id=UUID(int=7)
)


def hostile(
    partition: dict[str, str],
    clustering: dict[str, str] | None = None,
    static: dict[str, str] | None = None,
    regular: dict[str, str] | None = None,
) -> Table:
    """A table `shop.hostile`."""
    return table(
        partition, clustering, static, regular, keyspace="shop", name="hostile", table_id=UUID(int=100)
    )  # fmt: skip


def ints(*names: str) -> dict[str, str]:
    """Columns of these names, all of them ints."""
    return dict.fromkeys(names, "int")


def with_fields(*fields: str, multicell: bool = False) -> Table:
    """A table with a column `u` of a user type that has these fields, all ints."""
    types = {"u": UserTypeDefinition("u", fields, ("int",) * len(fields))}
    of = hostile({"id": "int"}, regular={"v": "text", "u": "int"})
    regular = [
        replace(one, type=parse_type("u" if multicell else "frozen<u>", types)) if one.name == "u" else one
        for one in of.regular
    ]
    return replace(of, regular=tuple(regular))


NAMES: Final[Mapping[str, Table]] = {
    "columns that differ by case": hostile({"id": "int"}, regular={"Val": "text", "val": "int", "VAL": "int"}),
    "keys that differ by case": hostile({"id": "int", "Id": "int"}, {"iD": "int"}, regular={"v": "text"}),
    "a static column and a regular one": hostile({"id": "int"}, {"c": "int"}, {"S": "text"}, {"s": "text"}),
    "columns of the database's own": hostile(
        {"xmin": "int"}, {"ctid": "int"}, {"DB_ROW_ID": "int"},
        ints("xmax", "cmin", "cmax", "tableoid", "oid", "rowid", "_rowid_", "FTS_DOC_ID"),
    ),
    "U+0000": hostile({"i\0d": "int"}, {"c\0": "int"}, regular={"a\0b": "text", "a_b": "int", "\0": "int"}),
    "an empty name": hostile({"id": "int"}, regular={"": "text", "_": "int"}),
    "long names": hostile({"id": "int"}, regular={"x" * 1000: "text", "x" * 999 + "y": "int", "é" * 200: "int"}),
    "words of SQL, and of the sinks": hostile(
        {"select": "int"}, {"order": "int"}, regular=ints(
            "group", "table", "index", "from", "primary", "user", "__key", "__clustering", "__bucket", "day", "topic",
            "count", "gone",
        ),
    ),
    "marks": hostile(
        {"i d": "int"}, regular=ints(
            'a"b', "a`b", "a%b", "a:b", "(c)", "d\\", "new\nline", "tab\t", "😀", "😁", "a.b", "'", "end ", "end",
            "%(x)s", "?", "$1", "[x]", ",;{}()=",
        ),
    ),
    "accents": hostile(
        {"e": "int"}, regular=ints("é", "É", "ß", "s", "ss", "\u0131", "i", "İ", "\u212a", "k", "\ufb00")
    ),
}  # fmt: skip
FIELDS: Final[Mapping[str, Table]] = {
    "fields that differ by case": with_fields("F", "f"),
    "fields that differ by case, cell by cell": with_fields("F", "f", multicell=True),
    "a field with U+0000": with_fields("a\0b", "a_b"),
    "a field with an empty name": with_fields("", "_"),
}


def row(of: Table, first: int = 1) -> list[Change]:
    """A row with a value in each column, all different; from `first` on."""
    log, values = Log(of), _Values(first)
    key = tuple(map(values.of, of.partition_key))
    clustering = tuple(map(values.of, of.clustering))
    changes = [log.insert(key, clustering, 10, **{one.name: values.of(one) for one in of.regular})]
    if of.static:
        changes.append(log.static(key, 10, **{one.name: values.of(one) for one in of.static}))
    return changes


class _Values:
    """Counts."""

    def __init__(self, first: int) -> None:
        self._next = first

    def of(self, column: Column) -> object:
        """A value of the column's type."""
        self._next += 1
        match column.type.kind:
            case "text":
                return f"text {self._next}"
            case "udt":
                fields = {name: self._next + place for place, name in enumerate(column.type.fields)}
                return {"=": None, **fields} if column.type.multicell else fields
        return self._next


def _varint(number: int) -> bytes:
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _decimal(scale: int, unscaled: int) -> bytes:
    return struct.pack(">i", scale) + _varint(unscaled)


def _durations() -> list[bytes]:
    parts = ("months", "days", "nanoseconds")
    ends = [(2**31 - 1, 2**31 - 1, 2**63 - 1), (-(2**31), -(2**31), -(2**63)), (0, 0, 0)]
    return [codec(CqlType("duration")).encode(dict(zip(parts, one, strict=True))) for one in ends]


EXTREMES: Final[Mapping[str, Sequence[bytes]]] = {
    "boolean": [b"\0", b"\1", b"\2", b""],
    "tinyint": [b"\x80", b"\x7f", b""],
    "smallint": [b"\x80\0", b"\x7f\xff", b""],
    "int": [b"\x80\0\0\0", b"\x7f\xff\xff\xff", b""],
    "bigint": [b"\x80" + bytes(7), b"\x7f" + b"\xff" * 7, b""],
    "float": [
        bytes.fromhex(one) for one in ("7fc00000", "ffc00001", "7f800000", "ff800000", "80000000", "00000001", "")
    ],
    "double": [
        bytes.fromhex(one)
        for one in ("7ff8000000000000", "fff8000000000001", "7ff0000000000000", "fff0000000000000", "8000000000000000",
                    "0000000000000001", "")
    ],
    "varint": [_varint(10**4000), _varint(-(10**4000)), b"\0\0\0\1", b""],
    "decimal": [
        _decimal(2**31 - 1, 1), _decimal(-(2**31), -(10**50)), _decimal(0, 10**4000), _decimal(20_000, 10**4000),
        _decimal(-20_000, 1), _decimal(5, 0), b"",
    ],
    "text": [b"\0", "\U0010ffff\ufeff\u2028\ud7ff".encode(), b"x" * 100_000, b"'\"\\\n\t%s{}", b""],
    "ascii": [b"\0", b"\x7f", b""],
    "blob": [b"", bytes(range(256)), b"\xff" * 100_000],
    "uuid": [bytes(16), b"\xff" * 16, b""],
    "inet": [bytes(4), b"\xff" * 4, bytes(16), b"\xff" * 16, bytes(10) + b"\xff\xff\1\2\3\4"],
    "timestamp": [struct.pack(">q", one) for one in (-(2**63), 2**63 - 1, -62_135_596_800_001, 253_402_300_800_000)],
    "date": [struct.pack(">I", one) for one in (0, 2**32 - 1, 2**31)],
    "time": [struct.pack(">q", one) for one in (0, 86_399_999_999_999)],
    "duration": _durations(),
}  # fmt: skip
"""By type, Cassandra's bytes of values that stores have trouble with; it takes each of them, but no
tinyint and smallint without bytes."""
TYPES: Final = hostile(
    {"id": "int"},
    regular={f"c_{kind}": kind for kind in EXTREMES}
    | {f"l_{kind}": f"frozen<list<{kind}>>" for kind in EXTREMES}
    | {f"m_{kind}": f"frozen<map<{kind}, {kind}>>" for kind in EXTREMES if kind != "duration"},
)


WRITE_TIMES: Final = (-(2**63) + 1, -(2**53) - 1, -1, 0, 2**53 + 1, 2**63 - 1)
"""Of USING TIMESTAMP: the first and the last that Cassandra takes, and what a floating-point number cannot hold."""


LONG_NAMES: Final = tuple(
    table(
        {"id": "int"}, regular={"v": "text"}, keyspace="k" * 48, name="t" * 221 + last, table_id=UUID(int=200 + number)
    )
    for number, last in enumerate("ab")
)
"""Tables with the longest names that Cassandra has, which differ in their last letter."""


def extremes() -> list[Change]:
    """Rows in which each column of TYPES has each value of EXTREMES once at least, alone and in collections."""
    columns = {one.name: one for one in TYPES.regular}
    made = []
    for number in range(max(map(len, EXTREMES.values()))):
        change, cells = Log(TYPES).insert((number,), (), 10), list[Cell]()
        for kind, values in EXTREMES.items():
            value = values[number % len(values)]
            counted = struct.pack(">i", len(value)) + value
            whole = {"c": value, "l": struct.pack(">i", 1) + counted, "m": struct.pack(">i", 1) + counted + counted}
            cells += [
                Cell(columns[f"{form}_{kind}"], None, 10, None, None, data)
                for form, data in whole.items()
                if f"{form}_{kind}" in columns
            ]
        made.append(replace(change, cells=tuple(cells)))
    return made
