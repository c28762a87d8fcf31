"""Clustering values as bytes that sort, unsigned, as Cassandra sorts the rows.

A component is one byte that says what follows, then the value's comparable form:

    01        null, always first, in DESC columns too (ClusteringComparator.compareComponent; COMPACT STORAGE only)
    02        empty bytes, before every value
    03 ...    a value
    FD, FC .. empty and value of a DESC column: all bytes inverted (ReversedType)

No component is a prefix of another, and none starts with 00 or FF. So keys of several columns compare column by
column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from tailrace_schemas.cql import comparable
from tailrace_schemas.cql.comparable import INVERTED, Comparable
from tailrace_schemas.cql.nested import expect_end, read_count, read_element, read_vector_element
from tailrace_schemas.cql.types import LEXICAL_UUID, CqlType
from tailrace_schemas.errors import TruncatedError

_NULL: Final = b"\x01"
_EMPTY: Final = b"\x02"
_VALUE: Final = b"\x03"
_END: Final = b"\x00"  # behind the elements of a collection or record: below every component

_SCALARS: Final[Mapping[str, Comparable]] = {
    "bigint": comparable.SignedInteger("bigint", 8),
    "boolean": comparable.Boolean(),
    "date": comparable.FixedBytes("date", 4),
    "decimal": comparable.Decimal(),
    "double": comparable.FloatingPoint("double", 8, 11),
    "float": comparable.FloatingPoint("float", 4, 8),
    "int": comparable.SignedInteger("int", 4),
    "smallint": comparable.SignedInteger("smallint", 2),
    "time": comparable.FixedBytes("time", 8),
    "timestamp": comparable.SignedInteger("timestamp", 8),
    "timeuuid": comparable.TimeUuid(),
    "tinyint": comparable.SignedInteger("tinyint", 1),
    "uuid": comparable.Uuid(),
    "varint": comparable.Varint(),
}
_BYTE_ORDER: Final = comparable.ByteOrder()
_LEXICAL_UUID: Final = comparable.LexicalUuid()


def sortable(cql_type: CqlType, data: bytes | None, descending: bool) -> bytes:
    """The component of one clustering value: compared unsigned as Cassandra compares values of the type.

    `data` None is null. Equal components are one row to Cassandra. Raises TruncatedError or CorruptError where `data`
    is no value of the type.
    """
    # To look a type up as a whole its parts are hashed: the kind alone decides for most.
    compared = None if cql_type.name else _SCALARS.get(cql_type.kind)
    component = _component(order(cql_type) if compared is None else compared, data)
    return component.translate(INVERTED) if descending and data is not None else component


@lru_cache(maxsize=4096)
def order(cql_type: CqlType) -> Comparable:
    """How values of a type compare; types without an order of their own compare as bytes."""
    if cql_type.name == LEXICAL_UUID:
        return _LEXICAL_UUID
    make = _NESTED.get(cql_type.kind)
    return _SCALARS.get(cql_type.kind, _BYTE_ORDER) if make is None else make(cql_type)


class _Elements(Comparable):
    """Element by element, then the shorter first: CollectionType.compareListOrSet, MapType.compareMaps.

    `elements` are the types of one entry: one, or key and value.
    """

    def __init__(self, elements: tuple[Comparable, ...]) -> None:
        self._elements = elements

    def form(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        offset = 4
        for _ in range(read_count(data, 4 * len(self._elements))):
            for element in self._elements:
                value, offset = read_element(data, offset)
                parts.append(_component(element, value))
        expect_end("collection", data, offset)
        parts.append(_END)
        return b"".join(parts)


class _Fields(Comparable):
    """Field by field, null first; fields missing at the end are nulls (TupleType.compareCustom, UserType).

    Nulls at the end are left out, so that a key stays the same when a field is added to its user type.
    """

    def __init__(self, fields: tuple[Comparable, ...]) -> None:
        self._fields = fields

    def form(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        offset = 0
        for field in self._fields:
            if offset == len(data):
                break
            value, offset = read_element(data, offset)
            parts.append(_component(field, value))
        expect_end("tuple", data, offset)
        while parts and parts[-1] == _NULL:
            parts.pop()
        parts.append(_END)
        return b"".join(parts)


class _Vector(Comparable):
    """Element by element (VectorType.compareCustom); `size` is that of each element, None where it varies."""

    def __init__(self, element: Comparable, size: int | None, dimension: int) -> None:
        self._element = element
        self._size = size
        self._dimension = dimension

    def form(self, data: bytes) -> bytes:
        parts: list[bytes] = []
        offset = 0
        for _ in range(self._dimension):
            if self._size is None:
                value, offset = read_vector_element(data, offset)
            else:
                value, offset = data[offset : offset + self._size], offset + self._size
                if offset > len(data):
                    raise TruncatedError(f"a vector of {self._dimension} elements in {len(data)} bytes")
            parts.append(_component(self._element, value))
        expect_end("vector", data, offset)
        return b"".join(parts)


def _component(compared: Comparable, data: bytes | None) -> bytes:
    if data is None:
        return _NULL
    return _VALUE + compared.form(data) if data else _EMPTY


def _collection(cql_type: CqlType) -> Comparable:
    return _Elements(tuple(order(arg) for arg in cql_type.args))


def _record(cql_type: CqlType) -> Comparable:
    return _Fields(tuple(order(arg) for arg in cql_type.args))


def _vector(cql_type: CqlType) -> Comparable:
    element = cql_type.args[0]
    return _Vector(order(element), element.fixed_size, cql_type.dimension)


_NESTED: Final[Mapping[str, Callable[[CqlType], Comparable]]] = {
    "list": _collection,
    "set": _collection,
    "map": _collection,
    "tuple": _record,
    "udt": _record,
    "vector": _vector,
}
