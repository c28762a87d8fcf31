"""Timestamps and dates that Delta tables cannot have: what stands instead, with Cassandra's bytes kept in `raw`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tailrace_schemas.avro.convert import to_bytes
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, Table

FARTHEST: Final = (2**63 - 1) // 1000
"""The largest timestamp, in milliseconds, that is a number of microseconds; -FARTHEST is the smallest."""
FIRST_DAY, LAST_DAY = -96_465_292, 95_026_236
"""Days since 1970 of 1 January -262143 and of 31 December 262142: delta-rs writes no date beyond these."""

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
        changed["range"] = {at: _named(table.clustering, ends[at], raw, at) for at in ("start", "end")}
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
        name = avro_name(column.name)
        if named.get(name) is not None:
            named[name] = _value(column, column.type, None, named[name], raw, where)
    return named


def _edit(column: Column, edit: Mapping[str, Any] | None, raw: _Raw) -> dict[str, Any] | None:
    if edit is None:
        return None
    args = column.type.args
    if column.type.kind == "udt":
        fields = dict(edit["set"])
        for number, (name, of) in enumerate(zip(column.type.fields, args, strict=True)):
            at = avro_name(name)
            if fields.get(at) is not None:
                fields[at] = _value(column, of, number.to_bytes(2, "big"), fields[at], raw, "value")
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
        element["key"] = _clamped(column.type.args[0], element["key"])
    if "value" in element:
        element["value"] = _value(column, column.type.args[-1], element["path"], element["value"], raw, "value")
    return element


def _value(column: Column, of: CqlType, path: bytes | None, value: Any, raw: _Raw, where: str) -> Any:
    near = _clamped(of, value)
    if near != value:
        kept = {"column": column.name, "path": path, "where": where, "bytes": to_bytes(of, value)}
        raw.setdefault((column.name, path, where), kept)
        return near
    return value


def _clamped(of: CqlType, value: Any) -> Any:
    if value is None:
        return None
    match of.kind:
        case "timestamp":
            return max(-FARTHEST, min(FARTHEST, value))
        case "date":
            return max(FIRST_DAY, min(LAST_DAY, value))
        case "list" | "set" | "vector":
            return [_clamped(of.args[0], item) for item in value]
        case "map":
            names = zip(("key", "value"), of.args, strict=True)
            pairs = [(name, arg) for name, arg in names]
            return [{name: _clamped(arg, item[name]) for name, arg in pairs} for item in value]
        case "tuple":
            return {f"f{number}": _clamped(arg, value.get(f"f{number}")) for number, arg in enumerate(of.args)}
        case "udt":
            fields = zip(map(avro_name, of.fields), of.args, strict=True)
            return {name: _clamped(arg, value.get(name)) for name, arg in fields}
    return value
