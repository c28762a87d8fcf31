"""Timestamps and dates outside the years 1 to 9999 in records with logical types: null, and their bytes in `raw`.

Cassandra takes them, and so do Java's readers; Python's raise on them, and a consumer never gets past such a record.
"""

from __future__ import annotations

from typing import Any

from tailrace_schemas.avro.convert import YEARS
from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType, parts


def within_years(of: CqlType, value: Any) -> Any:
    """A value of a type; None where anything in it is outside of the years that readers have."""
    return None if _outside(of, value) else value


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
