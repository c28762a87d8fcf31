"""A result as text: the same for the same value of pure and of compiled code, whatever their classes' own words are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from hashlib import sha256
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import Column, Table

_LONGEST: Final = 400
_MOST_BITS: Final = 2_000  # of numbers that Python writes in decimal digits, whatever its settings
_PLAIN: Final = frozenset((bool, float, str, bytes, type(None)))


def shown(value: Any) -> str:
    """All that a value holds: fields of dataclasses, public attributes of other classes of ours, in their order.

    Tables, columns and types are named: they are compared by cases of their own.
    """
    of = type(value)
    if of in _PLAIN:
        return repr(value)
    if of is int:
        return repr(value) if value.bit_length() <= _MOST_BITS else hex(value)
    if isinstance(value, tuple | list | Iterator) or of.__name__ == "vec":
        return "[" + ", ".join([shown(item) for item in value]) + "]"
    if isinstance(value, Table | Column | CqlType | Enum):
        return str(value) if not isinstance(value, Column) else value.name
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{shown(key)}: {shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Set):
        return "{" + ", ".join(sorted(map(shown, value))) + "}"
    if isinstance(value, bytearray | memoryview):
        return repr(bytes(value))
    if isinstance(value, pa.Table | pa.RecordBatch):
        return f"{value.schema.to_string()} {value.to_pylist()}"
    if of.__module__.startswith("tailrace"):
        parts = [f"{name}={shown(getattr(value, name))}" for name in _names(of, value) if hasattr(value, name)]
        return f"{of.__name__}({', '.join(parts)})"
    return repr(value)


def _names(of: type, value: Any) -> tuple[str, ...]:
    return _declared(of) or tuple(sorted(name for name in value.__dict__ if not name.startswith("_")))


@cache
def _declared(of: type) -> tuple[str, ...]:
    if is_dataclass(of):
        return tuple(field.name for field in fields(of))
    slots = (name for base in of.__mro__ for name in getattr(base, "__slots__", ()))
    names = getattr(of, "__mypyc_attrs__", None) or slots
    return tuple(sorted(name for name in {*names} if not name.startswith("_")))


def shortened(text: str) -> str:
    """The text, or its beginning and its digest: enough to compare, and to see what it is about."""
    if len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}... of {len(text)}, {sha256(text.encode(errors='surrogatepass')).hexdigest()}"
