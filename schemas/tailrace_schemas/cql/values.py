"""Cassandra's bytes to plain values and back: one codec per type, resolved once; partition keys to components.

Plain values are those of docs/contracts.md section 3, the same for Avro, JSON and SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from tailrace_schemas.cql.coding import Codec
from tailrace_schemas.cql.nested import ListCodec, MapCodec, RecordCodec, VariableVectorCodec, VectorCodec
from tailrace_schemas.cql.numeric import (
    BooleanCodec,
    DateCodec,
    DecimalCodec,
    FloatCodec,
    IntegerCodec,
    VarintCodec,
)
from tailrace_schemas.cql.scalars import (
    BytesCodec,
    CounterCodec,
    DurationCodec,
    EmptyCodec,
    InetCodec,
    TextCodec,
    UuidCodec,
)
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.errors import CorruptError, TruncatedError

__all__ = ["Codec", "codec", "join_key", "split_key"]

_NATIVE: Final[Mapping[str, Codec]] = {
    "ascii": TextCodec("ascii", "ascii"),
    "bigint": IntegerCodec("bigint", "q"),
    "blob": BytesCodec("blob"),
    "boolean": BooleanCodec(),
    "counter": CounterCodec(),
    "date": DateCodec(),
    "decimal": DecimalCodec(),
    "double": FloatCodec("double", "d"),
    "duration": DurationCodec(),
    "empty": EmptyCodec(),
    "float": FloatCodec("float", "f"),
    "inet": InetCodec(),
    "int": IntegerCodec("int", "i"),
    "smallint": IntegerCodec("smallint", "h"),
    "text": TextCodec("text", "utf-8"),
    "time": IntegerCodec("time", "q"),
    "timestamp": IntegerCodec("timestamp", "q"),
    "timeuuid": UuidCodec("timeuuid"),
    "tinyint": IntegerCodec("tinyint", "b"),
    "uuid": UuidCodec("uuid"),
    "varint": VarintCodec(),
}


@lru_cache(maxsize=4096)
def codec(cql_type: CqlType) -> Codec:
    """The codec of a type; an unknown kind is read as bytes.

    A multi-cell type gets the codec of its frozen form; its cells are coded by the codecs of `cql_type.args`.
    """
    native = _NATIVE.get(cql_type.kind)
    if native is not None:
        return native
    make = _NESTED.get(cql_type.kind)
    return BytesCodec("custom") if make is None else make(cql_type)


def split_key(types: Sequence[CqlType], data: bytes) -> tuple[bytes, ...]:
    """The components of a serialized partition key, one per column.

    One column: the bytes alone; more: CompositeType's `u16 length, bytes, 0` each. Raises TruncatedError or
    CorruptError where the bytes are no such key.
    """
    if len(types) == 1:
        return (data,)
    values: list[bytes] = []
    offset = 0
    for _ in types:
        end = offset + 2 + int.from_bytes(data[offset : offset + 2], "big")
        if end >= len(data):
            raise TruncatedError(f"component {len(values)} of a partition key is cut", offset=offset)
        if data[end]:
            raise CorruptError("a component of a partition key ends in 0", offset=end)
        values.append(data[offset + 2 : end])
        offset = end + 1
    if offset != len(data):
        raise CorruptError(f"{len(data) - offset} bytes after a partition key of {len(types)} columns", offset=offset)
    return tuple(values)


def join_key(types: Sequence[CqlType], values: Sequence[bytes]) -> bytes:
    """The serialized partition key of its components: what `split_key` takes apart (CompositeType.build).

    Raises ValueError for another number of components, or for one above 65535 bytes.
    """
    if len(types) != len(values):
        raise ValueError(f"a partition key of {len(types)} columns, not {len(values)}")
    if any(len(value) > 0xFFFF for value in values):
        raise ValueError("a partition key's component has at most 65535 bytes")
    if len(values) == 1:
        return values[0]
    return b"".join(len(value).to_bytes(2, "big") + value + b"\x00" for value in values)


def _list(cql_type: CqlType) -> Codec:
    return ListCodec(cql_type.kind, codec(cql_type.args[0]))


def _map(cql_type: CqlType) -> Codec:
    return MapCodec(codec(cql_type.args[0]), codec(cql_type.args[1]))


def _tuple(cql_type: CqlType) -> Codec:
    names = tuple(f"f{index}" for index in range(len(cql_type.args)))
    return RecordCodec("tuple", names, tuple(codec(arg) for arg in cql_type.args))


def _user_type(cql_type: CqlType) -> Codec:
    return RecordCodec("user type", cql_type.fields, tuple(codec(arg) for arg in cql_type.args))


def _vector(cql_type: CqlType) -> Codec:
    element = codec(cql_type.args[0])
    size = cql_type.args[0].fixed_size
    if size is None:
        return VariableVectorCodec(element, cql_type.dimension)
    code = element.code if isinstance(element, IntegerCodec | FloatCodec) else ""
    return VectorCodec(element, size, cql_type.dimension, code)


_NESTED: Final[Mapping[str, Callable[[CqlType], Codec]]] = {
    "list": _list,
    "set": _list,
    "map": _map,
    "tuple": _tuple,
    "udt": _user_type,
    "vector": _vector,
}
