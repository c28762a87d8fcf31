"""Timestamps and dates that tables of a lake cannot have: what stands instead, with Cassandra's bytes kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tailrace_schemas.avro.convert import to_bytes
from tailrace_schemas.avro.names import avro_name, bound_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, Table

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Days since 1970 of 1 January 1 and 31 December 9999. Others could be written, but not be read by most:

files say the smallest and largest of their values as text, at which readers fail that know four digits of a year.
"""
FIRST_MOMENT, LAST_MOMENT = FIRST_DAY * 86_400_000, (LAST_DAY + 1) * 86_400_000 - 1
"""The first and last of them, in milliseconds."""

_Raw = dict[tuple[str, bytes | None, str], dict[str, Any]]


def within(table: Table, record: Mapping[str, Any]) -> dict[str, Any]:
    """A record (docs/contracts.md 3) whose timestamps and dates are those that Delta tables can have, or the nearest.

    Of a value with one beyond them, `raw` has the bytes, as of others that the record cannot say; what `raw` has
    already stays.
    """
    raw: _Raw = {(item["column"], item["path"], item["where"]): item for item in record.get("raw") or ()}
    changed = dict(record)
    if record["key"] is not None:
        changed["key"] = _named(table.key, record["key"], raw, "key")
    ends = record.get("range")
    if ends is not None:
        changed["range"] = {bound: _named(table.clustering, ends[bound], raw, bound) for bound in ("start", "end")}
    columns = {avro_name(column.name): column for column in table.columns}
    changed["columns"] = {
        name: _edit(columns[name], value, raw)
        if columns[name].type.multicell
        else _value(columns[name], columns[name].type, None, value, raw, "value")
        for name, value in record["columns"].items()
    }
    changed["raw"] = list(raw.values()) or None
    return changed


def _named(columns: Sequence[Column], values: Mapping[str, Any], raw: _Raw, where: str) -> dict[str, Any]:
    named = dict(values)
    for column in columns:
        name = avro_name(column.name) if where == "key" else bound_name(column.name)
        if named.get(name) is not None:
            named[name] = _value(column, column.type, None, named[name], raw, where)
    return named


def _edit(column: Column, edit: Mapping[str, Any] | None, raw: _Raw) -> dict[str, Any] | None:
    if edit is None:
        return None
    args = column.type.args
    if column.type.kind == "udt":
        fields = dict(edit["set"])
        for index, (name, of) in enumerate(zip(column.type.fields, args, strict=True)):
            field = avro_name(name)
            if fields.get(field) is not None:
                fields[field] = _value(column, of, index.to_bytes(2, "big"), fields[field], raw, "value")
        return {**edit, "set": fields}
    return {
        **edit,
        "set": [_element(column, item, raw) for item in edit["set"]],
        "removed": [_element(column, item, raw) for item in edit["removed"]],
    }


def _element(column: Column, item: Mapping[str, Any], raw: _Raw) -> dict[str, Any]:
    """An element, which its path names: a key is there for people."""
    element = dict(item)
    if "key" in element:
        element["key"] = nearest(column.type.args[0], element["key"])
    if "value" in element:
        element["value"] = _value(column, column.type.args[-1], element["path"], element["value"], raw, "value")
    return element


def _value(column: Column, of: CqlType, path: bytes | None, value: Any, raw: _Raw, where: str) -> Any:
    near = nearest(of, value)
    if near != value:
        raw_value = {"column": column.name, "path": path, "where": where, "bytes": to_bytes(of, value)}
        raw.setdefault((column.name, path, where), raw_value)
        return near
    return value


def nearest(of: CqlType, value: Any) -> Any:
    """A value of a type, in which what Delta tables cannot have is the nearest that they can; as Avro has it."""
    if value is None:
        return None
    match of.kind:
        case "timestamp":
            return max(FIRST_MOMENT, min(LAST_MOMENT, value))
        case "date":
            return max(FIRST_DAY, min(LAST_DAY, value))
        case "list" | "set" | "vector":
            return [nearest(of.args[0], item) for item in value]
        case "map":
            names = zip(("key", "value"), of.args, strict=True)
            pairs = [(name, arg) for name, arg in names]
            return [{name: nearest(arg, item[name]) for name, arg in pairs} for item in value]
        case "tuple":
            return {f"f{index}": nearest(arg, value.get(f"f{index}")) for index, arg in enumerate(of.args)}
        case "udt":
            fields = zip(map(avro_name, of.fields), of.args, strict=True)
            return {name: nearest(arg, value.get(name)) for name, arg in fields}
    return value
