"""Cassandra's bytes to the values of the Avro schema and back; tells when the way back would not be exact."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tailrace_schemas.avro.names import avro_name
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.errors import DecodeError

Convert = Callable[[object], object]


def to_avro(cql_type: CqlType, data: bytes) -> tuple[object, bool]:
    """(value for Avro, whether `to_bytes` gives back exactly these bytes).

    Bytes that are no value of the type give None and False: the caller keeps them in `raw`. So do empty bytes of a type
    that has no empty value.
    """
    coder = codec(cql_type)
    try:
        value = coder.decode(data)
        if value is None:
            return None, False
        exact = coder.exact or coder.encode(value) == data
    except DecodeError:
        return None, False
    rename = renaming(cql_type, True)
    return (value if rename is None else rename(value)), exact


def to_bytes(cql_type: CqlType, value: object) -> bytes:
    """The Cassandra bytes of a value that Avro carried."""
    return encoder_of(cql_type)(value)


@cache
def encoder_of(cql_type: CqlType) -> Callable[[object], bytes]:
    """`to_bytes` of one type, for whoever has many values of it: a type's hash takes longer than a number's bytes."""
    rename, encode = renaming(cql_type, False), codec(cql_type).encode
    if rename is None:
        return encode
    return lambda value: encode(rename(value))


@cache
def renaming(cql_type: CqlType, to: bool) -> Convert | None:
    """Renames user type fields between CQL's names and Avro's; None where nothing below has another name."""
    inner = [renaming(arg, to) for arg in cql_type.args]
    kind = cql_type.kind
    if kind == "udt":
        names = [avro_name(field) for field in cql_type.fields]
        if not any(inner) and tuple(names) == cql_type.fields:
            return None
        pairs = list(zip(cql_type.fields, names, strict=True) if to else zip(names, cql_type.fields, strict=True))
        return lambda value: _fields(value, pairs, inner)
    if not any(inner):
        return None
    if kind == "tuple":
        pairs = [(f"f{i}", f"f{i}") for i in range(len(inner))]
        return lambda value: _fields(value, pairs, inner)
    if kind == "map":
        pairs = [("key", "key"), ("value", "value")]
        return lambda value: [_fields(entry, pairs, inner) for entry in _list(value)]
    return lambda value: [_one(item, inner[0]) for item in _list(value)]


def _one(value: object, rename: Convert | None) -> object:
    return value if value is None or rename is None else rename(value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"a collection's value is a list, not {type(value).__name__}")
    return value


def _fields(value: object, pairs: list[tuple[str, str]], inner: list[Convert | None]) -> object:
    if not isinstance(value, dict):
        raise TypeError(f"a record's value is a dict, not {type(value).__name__}")
    return {new: _one(value.get(old), rename) for (old, new), rename in zip(pairs, inner, strict=True)}
