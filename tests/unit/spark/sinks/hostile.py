"""Tables that stores have trouble with, for their names: Cassandra takes any text as the name of a column or field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

from tailrace_schemas.change import Change
from tailrace_schemas.cql.types import UserTypeDefinition, parse_type
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
