"""Timestamps and dates outside the years 1 to 9999 in records with logical types: null, and their bytes in `raw`.

Cassandra takes them, and so do Java's readers; Python's raise on them, and a consumer never gets past such a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from tailrace_schemas.avro.convert import YEARS, to_bytes
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.cql.types import CqlType, parts
from tailrace_schemas.table import Column, Table

_DateCell = tuple[dict[str, Any], str, Column, bytes | None, str, CqlType]
"""A value: what holds it, under which name, its column, path and place in `raw` ("": none), its type."""


class Calendar:
    """Brings the records of one definition's changes (docs/contracts.md 3) within the years that readers have."""

    def __init__(self, table: Table) -> None:
        self._key = [column for column in table.key if is_dated(column.type)]
        self._clustering = [column for column in table.clustering if is_dated(column.type)]
        self._columns = [column for column in table.columns if is_dated(column.type)]

    def within(self, record: dict[str, Any]) -> dict[str, Any]:
        """The record itself, or where something in it is outside, one in which that is null and its bytes in `raw`."""
        if not any(self._outside(record)):
            return record
        copy = deepcopy(record)
        raw: list[dict[str, Any]] = list(copy.get("raw") or ())
        raw_keys = {(item["column"], item["path"], item["where"]) for item in raw}

        def keep(column: Column, path: bytes | None, where: str, cql_type: CqlType, value: Any) -> None:
            if (column.name, path, where) not in raw_keys:
                raw.append({"column": column.name, "path": path, "where": where, "bytes": to_bytes(cql_type, value)})

        for holder, name, column, path, member, cql_type in self._date_cells(copy):
            if _outside(cql_type, holder.get(name)):
                if member:
                    keep(column, path, member, cql_type, holder[name])
                holder[name] = None
        return {**copy, "raw": raw or None}

    def _outside(self, record: dict[str, Any]) -> Iterator[bool]:
        return (_outside(cql_type, holder.get(name)) for holder, name, _, _, _, cql_type in self._date_cells(record))

    def _date_cells(self, record: dict[str, Any]) -> Iterator[_DateCell]:
        """Each value of a dated type. Keys of elements have no place in `raw`: their paths are their bytes."""
        yield from _named(self._key, record["key"], "key")
        for end, bound in (record["range"] or {}).items():
            yield from _named(self._clustering, bound, end)
        for column in self._columns:
            name = avro_name(column.name)
            value = record["columns"].get(name)
            if value is not None and column.type.multicell:
                yield from _elements(column, value)
            elif value is not None:
                yield record["columns"], name, column, None, "value", column.type


def _named(columns: Sequence[Column], holder: dict[str, Any] | None, where: str) -> Iterator[_DateCell]:
    if holder is not None:
        for column in columns:
            name = avro_name(column.name) if where == "key" else bound_name(column.name)
            yield holder, name, column, None, where, column.type


def _elements(column: Column, edit: dict[str, Any]) -> Iterator[_DateCell]:
    args = column.type.args
    if column.type.kind == "udt":
        for index, (field, arg) in enumerate(zip(column.type.fields, args, strict=True)):
            yield edit["set"], avro_name(field), column, index.to_bytes(2, "big"), "value", arg
        return
    for item in (*edit["set"], *edit["removed"]):
        if column.type.kind != "list":
            yield item, "key", column, None, "", args[0]
        if column.type.kind != "set":
            yield item, "value", column, item["path"], "value", args[-1]


def is_dated(cql_type: CqlType) -> bool:
    """Whether there are timestamps or dates in a type's values."""
    return any(nested.kind in YEARS for nested in parts((cql_type,)))


def _outside(cql_type: CqlType, value: Any) -> bool:
    """Whether anything in a value is outside of what readers have."""
    if value is None or not is_dated(cql_type):
        return False
    kind, args = cql_type.kind, cql_type.args
    if kind in YEARS:
        first, last = YEARS[kind]
        return not first <= value <= last
    if kind == "map":
        return any(_outside(args[0], item["key"]) or _outside(args[1], item["value"]) for item in value)
    if kind == "tuple":
        return any(_outside(arg, value.get(f"f{index}")) for index, arg in enumerate(args))
    if kind == "udt":
        fields = zip(cql_type.fields, args, strict=True)
        return any(_outside(arg, value.get(avro_name(field))) for field, arg in fields)
    return any(_outside(args[0], item) for item in value)
