"""Codecs of numbers: fixed-size integers, floats, boolean, varint and decimal."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final

from tailrace_schemas.cql.coding import Codec, wrong_size, wrong_value
from tailrace_schemas.cql.digits import integer_text, integer_value, scaled_text, scaled_value
from tailrace_schemas.errors import TruncatedError

_DAY_ZERO: Final = 1 << 31


class IntegerCodec(Codec):
    """A signed integer of fixed size: tinyint, smallint, int, bigint, timestamp (ms since 1970), time (ns).

    Any value of the size is legal (ByteType, ShortType, Int32Type, LongType, TimestampType, TimeType).
    """

    def __init__(self, kind: str, code: str) -> None:
        super().__init__(exact=True)
        self.kind = kind
        self.code = code
        self._struct = Struct(">" + code)
        self._size = self._struct.size
        self._limit = 1 << (8 * self._size - 1)

    def decode(self, data: bytes) -> object:
        if len(data) != self._size:
            if not data:
                return None
            raise wrong_size(self.kind, self._size, len(data))
        value: int = self._struct.unpack(data)[0]
        return value

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, int) or isinstance(value, bool) or not -self._limit <= value < self._limit:
            raise wrong_value(self.kind, f"an int of {self._size} bytes", value)
        return self._struct.pack(value)


class DateCodec(Codec):
    """Days since 1970 as a signed int; on the wire unsigned with 2^31 added (SimpleDateType)."""

    def __init__(self) -> None:
        super().__init__(exact=True)

    def decode(self, data: bytes) -> object:
        if len(data) != 4:
            if not data:
                return None
            raise wrong_size("date", 4, len(data))
        return int.from_bytes(data, "big") - _DAY_ZERO

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, int) or isinstance(value, bool) or not -_DAY_ZERO <= value < _DAY_ZERO:
            raise wrong_value("date", "an int of 4 bytes, days since 1970", value)
        return (value + _DAY_ZERO).to_bytes(4, "big")


class FloatCodec(Codec):
    """IEEE floats, single or double precision (FloatType, DoubleType). Not exact: a NaN may lose its payload."""

    def __init__(self, kind: str, code: str) -> None:
        super().__init__(exact=False)
        self.kind = kind
        self.code = code
        self._struct = Struct(">" + code)
        self._size = self._struct.size

    def decode(self, data: bytes) -> object:
        if len(data) != self._size:
            if not data:
                return None
            raise wrong_size(self.kind, self._size, len(data))
        value: float = self._struct.unpack(data)[0]
        return value

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, float | int) or isinstance(value, bool):
            raise wrong_value(self.kind, "a float", value)
        try:
            return self._struct.pack(value)
        except (OverflowError, StructError):
            raise wrong_value(self.kind, f"a float that fits {self._size} bytes", value) from None


class BooleanCodec(Codec):
    """False is byte 0, True any other; written as 1, so not exact (BooleanType)."""

    def __init__(self) -> None:
        super().__init__(exact=False)

    def decode(self, data: bytes) -> object:
        if len(data) != 1:
            if not data:
                return None
            raise wrong_size("boolean", 1, len(data))
        return data[0] != 0

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, bool):
            raise wrong_value("boolean", "a bool", value)
        return b"\x01" if value else b"\x00"


class VarintCodec(Codec):
    """A big-endian two's complement integer of any size, as decimal text; not exact: the bytes need not be minimal.

    IntegerType.
    """

    def __init__(self) -> None:
        super().__init__(exact=False)

    def decode(self, data: bytes) -> object:
        return integer_text(int.from_bytes(data, "big", signed=True)) if data else None

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, str):
            raise wrong_value("varint", "the text of an integer", value)
        return minimal(integer_value(value))


class DecimalCodec(Codec):
    """A 32-bit scale and a varint, as the text of BigDecimal.toString, which keeps both (DecimalType).

    Not exact: the varint need not be minimal.
    """

    def __init__(self) -> None:
        super().__init__(exact=False)

    def decode(self, data: bytes) -> object:
        if not data:
            return None
        if len(data) < 5:
            raise TruncatedError(f"decimal has 5 bytes or more, not {len(data)}")
        scale = int.from_bytes(data[:4], "big", signed=True)
        return scaled_text(int.from_bytes(data[4:], "big", signed=True), scale)

    def encode(self, value: object) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, str):
            raise wrong_value("decimal", "the text of a number", value)
        unscaled, scale = scaled_value(value)
        return scale.to_bytes(4, "big", signed=True) + minimal(unscaled)


def minimal(value: int) -> bytes:
    """The shortest two's complement bytes of `value`, at least one: java.math.BigInteger.toByteArray."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)
