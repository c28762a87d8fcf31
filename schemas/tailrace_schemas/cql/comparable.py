"""Forms of scalar values that compare as unsigned bytes the way Cassandra compares the values themselves.

Each class takes the bytes of a value, never empty, and gives a form that is no prefix of another value's form. Equal
forms are equal values to Cassandra. The class it follows is named with each.
"""

from __future__ import annotations

from typing import Final

from tailrace_schemas.cql.coding import wrong_size
from tailrace_schemas.cql.digits import integer_text
from tailrace_schemas.cql.numeric import minimal
from tailrace_schemas.cql.vint import write_unsigned
from tailrace_schemas.errors import TruncatedError

INVERTED: Final[bytes] = bytes(255 - value for value in range(256))
_SIGN_OF_EACH: Final = 0x8080808080808080
# Beyond every digits - scale: scales have 32 bits, and no value has 2^34 digits.
_EXPONENT_ZERO: Final = 1 << 39


class Comparable:
    """The order of one type: `form(data)` of a value that is neither null nor empty.

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
