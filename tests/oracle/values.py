"""Values in one form, whether cassandra-driver answered them or a database's driver: equal by their CQL type."""

from __future__ import annotations

import datetime
import json
import struct
from decimal import Decimal
from math import isfinite
from typing import Any

from tailrace_schemas.cql.types import CqlType
from tests.oracle.rendering import NESTED, rendered


def answered(value: Any, cql_type: CqlType) -> object:
    """The one form of a value that SELECT answered."""
    return normal(rendered(value, cql_type), cql_type)


def key_of(form: object, cql_type: CqlType) -> object:
    """The one form of a value in a key: of equal decimals with other scales any may name a row, as whichever came first
    to a replica does in Cassandra."""
    return Decimal(form).normalize() if cql_type.kind == "decimal" and isinstance(form, tuple) else form


def normal(value: Any, cql_type: CqlType) -> object:
    """The one form of a value as a database's driver gives it, or as SQLite would hold it: hashable, None for NULL.

    Elements of sets and entries of maps stand in no order; numbers are exact.
    """
    if value is None:
        return None
    kind = cql_type.kind
    if kind in NESTED:
        return _nested(json.loads(value) if isinstance(value, str | bytes) else value, cql_type)
    match kind:
        case "float" | "double":
            return _floating(value, kind)
        case "boolean":
            return bool(value)
        case "decimal":
            return value if isinstance(value, tuple) else Decimal(str(value)).as_tuple()
        case "varint" | "tinyint" | "smallint" | "int" | "bigint" | "counter":
            return int(value)
        case "blob":
            return bytes(value)
        case "timestamp":
            return _instant(value)
        case "inet":
            return str(value).removesuffix("/32").removesuffix("/128")
    return str(value)


def _nested(value: Any, cql_type: CqlType) -> object:
    if value is None:
        return None
    args = cql_type.args
    match cql_type.kind:
        case "list" | "vector":
            return tuple(_nested(item, args[0]) for item in value)
        case "set":
            form = _element if cql_type.multicell else _nested
            return tuple(sorted((form(item, args[0]) for item in value), key=repr))
        case "map":
            return tuple(sorted((key, _nested(item, args[1])) for key, item in value.items()))
        case "tuple":
            return tuple(_nested(item, arg) for item, arg in zip(value, args, strict=True))
        case "udt":
            fields = zip(cql_type.fields, args, strict=True)
            return tuple((name, _nested(value[name], arg)) for name, arg in fields if name in value)
        case "float" | "double":
            return _floating(value, cql_type.kind)
    return value


def _element(value: Any, cql_type: CqlType) -> object:
    """Of equal decimals with other scales a set has one: the newest, of those of one time whichever came first."""
    return str(Decimal(value).normalize()) if cql_type.kind == "decimal" else _nested(value, cql_type)


def _floating(value: Any, kind: str) -> object:
    number = float(value)
    if kind == "float" and isfinite(number):
        number = float(struct.unpack(">f", struct.pack(">f", number))[0])
    return number if isfinite(number) else str(number)


def _instant(value: Any) -> str:
    if not isinstance(value, datetime.datetime):
        return str(value)
    zone = value.tzinfo or datetime.UTC
    there = value.replace(tzinfo=zone).astimezone(datetime.UTC).replace(tzinfo=None)
    return there.isoformat(timespec="milliseconds") + "Z"
