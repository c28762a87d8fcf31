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

from tailrace_schemas.cql.coding import wrong_size
from tailrace_schemas.cql.nested import expect_end, read_count, read_element, read_vector_element
from tailrace_schemas.cql.numeric import integer_text, minimal
from tailrace_schemas.cql.types import LEXICAL_UUID, CqlType
from tailrace_schemas.cql.vint import write_unsigned
from tailrace_schemas.errors import TruncatedError

BY_BYTES: Final = frozenset(
    {
        "ascii", "bigint", "blob", "date", "inet", "int", "smallint", "text", "time", "timestamp", "timeuuid",
        "tinyint", "uuid",
    }
)  # fmt: skip
"""Of these types values are equal to Cassandra exactly where their bytes are (compareCustom of each, BYTE_ORDER)."""
INVERTED: Final[bytes] = bytes(255 - value for value in range(256))
_SIGN_OF_EACH: Final = 0x8080808080808080
# Beyond every digits - scale: scales have 32 bits, and no value has 2^34 digits.
_EXPONENT_ZERO: Final = 1 << 39
_NULL: Final = b"\x01"
_EMPTY: Final = b"\x02"
_VALUE: Final = b"\x03"
_END: Final = b"\x00"  # behind the elements of a collection or record: below every component


class Comparable:
    """A form of scalar values that compares as unsigned bytes the way Cassandra compares the values themselves. Each
    class takes the bytes of a value, never empty, and gives a form that is no prefix of another value. Equal
    forms are equal values to Cassandra. The class it follows is named with each.

    The order of one type: `form(data)` of a value that is neither null nor empty.

    Raises TruncatedError or CorruptError where the bytes are no value of the type.
    """

    def form(self, data: bytes) -> bytes:
        """The comparable form."""
        raise NotImplementedError


class ByteOrder(Comparable):
    """Unsigned bytes, a prefix first: AsciiType, UTF8Type, BytesType, InetAddressType, DurationType (BYTE_ORDER).

    Also for custom types, whose comparator is not known here: equal bytes are equal, the order may not be theirs.
    """

    def form(self, data: bytes) -> bytes:
        return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


class FixedBytes(Comparable):
    """Unsigned bytes of one size: SimpleDateType and TimeType, where a negative time comes last (BYTE_ORDER)."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind = kind
        self._size = size

    def form(self, data: bytes) -> bytes:
        if len(data) != self._size:
            raise wrong_size(self._kind, self._size, len(data))
        return data


class SignedInteger(Comparable):
    """Signed integers of one size: ByteType, ShortType, Int32Type, LongType, TimestampType (compareCustom)."""

    def __init__(self, kind: str, size: int) -> None:
        self._kind = kind
        self._size = size

    def form(self, data: bytes) -> bytes:
        if len(data) != self._size:
            raise wrong_size(self._kind, self._size, len(data))
        return bytes((data[0] ^ 0x80,)) + data[1:]


class Boolean(Comparable):
    """False, then true; every byte but 0 is the same true (BooleanType.compareCustom)."""

    def form(self, data: bytes) -> bytes:
        if len(data) != 1:
            raise wrong_size("boolean", 1, len(data))
        return b"\x01" if data[0] else b"\x00"


class FloatingPoint(Comparable):
    """java.lang.Float.compare and Double.compare: -0.0 before 0.0, every NaN the same and last (FloatType, DoubleType).

    `exponent_bits` is 8 or 11.
    """

    def __init__(self, kind: str, size: int, exponent_bits: int) -> None:
        self._kind = kind
        self._size = size
        self._sign = 1 << (8 * size - 1)
        self._infinity = ((1 << exponent_bits) - 1) << (8 * size - 1 - exponent_bits)
        self._nan = self._infinity | (1 << (8 * size - 2 - exponent_bits))

    def form(self, data: bytes) -> bytes:
        if len(data) != self._size:
            raise wrong_size(self._kind, self._size, len(data))
        bits = int.from_bytes(data, "big")
        if bits & (self._sign - 1) > self._infinity:
            bits = self._nan
        flipped = bits ^ (2 * self._sign - 1) if bits & self._sign else bits | self._sign
        return flipped.to_bytes(self._size, "big")


class Varint(Comparable):
    """Numeric order; bytes that repeat the sign do not count (IntegerType.compareIntegers)."""

    def form(self, data: bytes) -> bytes:
        digits = minimal(int.from_bytes(data, "big", signed=True))
        # vints of lengths compare as the lengths; of two negative numbers the longer is the smaller.
        length = write_unsigned(len(digits))
        if digits[0] < 0x80:
            return b"\x01" + length + digits
        return b"\x00" + length.translate(INVERTED) + digits


class Decimal(Comparable):
    """Numeric order, java.math.BigDecimal.compareTo: 1.0 and 1.00 are equal, so they are one row (DecimalType).

    Sign, then the magnitude's exponent, then its digits without zeros at the end.
    """

    def form(self, data: bytes) -> bytes:
        if len(data) < 5:
            raise TruncatedError(f"decimal has 5 bytes or more, not {len(data)}")
        unscaled = int.from_bytes(data[4:], "big", signed=True)
        if unscaled == 0:
            return b"\x01"
        digits = integer_text(abs(unscaled))
        exponent = len(digits) - int.from_bytes(data[:4], "big", signed=True) + _EXPONENT_ZERO
        magnitude = exponent.to_bytes(5, "big") + digits.rstrip("0").encode("ascii") + b"\x00"
        return b"\x02" + magnitude if unscaled > 0 else b"\x00" + magnitude.translate(INVERTED)


class Uuid(Comparable):
    """By version; version 1 by its time; then unsigned bytes (UUIDType.compareCustom)."""

    def form(self, data: bytes) -> bytes:
        if len(data) != 16:
            raise wrong_size("uuid", 16, len(data))
        version = data[6] >> 4
        return bytes((version,)) + (_by_time(data) + data[8:] if version == 1 else data)


class TimeUuid(Comparable):
    """By time, then by the other bytes, each taken as signed (AbstractTimeUUIDType.compareCustom, CASSANDRA-8730).

    Cassandra refuses to compare other versions than 1; here they come as their bytes happen to.
    """

    def form(self, data: bytes) -> bytes:
        if len(data) != 16:
            raise wrong_size("timeuuid", 16, len(data))
        return _by_time(data) + (int.from_bytes(data[8:], "big") ^ _SIGN_OF_EACH).to_bytes(8, "big")


class LexicalUuid(Comparable):
    """java.util.UUID.compareTo: two signed 64-bit halves (LexicalUUIDType)."""

    def form(self, data: bytes) -> bytes:
        if len(data) != 16:
            raise wrong_size("uuid", 16, len(data))
        return bytes((data[0] ^ 0x80,)) + data[1:8] + bytes((data[8] ^ 0x80,)) + data[9:]


def _by_time(data: bytes) -> bytes:
    # Version and high, middle, low time: AbstractTimeUUIDType.reorderTimestampBytes.
    return data[6:8] + data[4:6] + data[:4]


_SCALARS: Final[Mapping[str, Comparable]] = {
    "bigint": SignedInteger("bigint", 8),
    "boolean": Boolean(),
    "date": FixedBytes("date", 4),
    "decimal": Decimal(),
    "double": FloatingPoint("double", 8, 11),
    "float": FloatingPoint("float", 4, 8),
    "int": SignedInteger("int", 4),
    "smallint": SignedInteger("smallint", 2),
    "time": FixedBytes("time", 8),
    "timestamp": SignedInteger("timestamp", 8),
    "timeuuid": TimeUuid(),
    "tinyint": SignedInteger("tinyint", 1),
    "uuid": Uuid(),
    "varint": Varint(),
}
_BYTE_ORDER: Final = ByteOrder()
_LEXICAL_UUID: Final = LexicalUuid()


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
