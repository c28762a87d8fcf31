"""Codecs of numbers: fixed-size integers, floats, boolean, varint, decimal; exact decimal text of the last two."""

from __future__ import annotations

import decimal
import re
from struct import Struct
from struct import error as StructError
from typing import Final

from tailrace_schemas.cql.coding import Codec, wrong_size, wrong_value
from tailrace_schemas.errors import TruncatedError

_DAY_ZERO: Final = 1 << 31
# str() and int() refuse numbers of more than 640 to 4300 digits, by the interpreter's setting.
_SHORT_BITS: Final = 2000
_SHORT_DIGITS: Final = 600
_EXACT: Final = decimal.Context(
    prec=decimal.MAX_PREC,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    rounding=decimal.ROUND_HALF_EVEN,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)
_INTEGER: Final = re.compile(r"-?[0-9]+", re.ASCII)
_SCALED: Final = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,18}))?", re.ASCII)
_MIN_SCALE: Final = -(1 << 31)
_MAX_SCALE: Final = (1 << 31) - 1


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

    def gives_back(self, data: bytes, value: object) -> bool:  # noqa: ARG002 - a large one's text takes long to read
        return _is_minimal(data)


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

    def gives_back(self, data: bytes, value: object) -> bool:  # noqa: ARG002 - as of a varint
        return _is_minimal(data[4:])


def minimal(value: int) -> bytes:
    """The shortest two's complement bytes of `value`, at least one: java.math.BigInteger.toByteArray."""
    bits = (value if value >= 0 else ~value).bit_length()
    return value.to_bytes(bits // 8 + 1, "big", signed=True)


def _is_minimal(data: bytes) -> bool:
    """Whether these are the shortest two's complement bytes of their value: the first says more than the sign."""
    return len(data) < 2 or data[0] not in (0, 255) or (data[0] ^ data[1]) > 127


def integer_text(value: int) -> str:
    """The decimal digits of `value`, with a minus sign where it is negative; any size."""
    if value.bit_length() <= _SHORT_BITS:
        return str(value)
    digits = format(_as_decimal(abs(value), value.bit_length(), {}), "f")
    return "-" + digits if value < 0 else digits


def integer_value(text: str) -> int:
    """The integer that `integer_text` printed; raises ValueError for anything but digits after an optional minus."""
    if _INTEGER.fullmatch(text) is None:
        raise ValueError("an integer is written as digits after an optional minus sign")
    negative = text.startswith("-")
    value = _from_digits(text[1:] if negative else text)
    return -value if negative else value


def scaled_text(unscaled: int, scale: int) -> str:
    """The number unscaled * 10^-scale as java.math.BigDecimal.toString prints it: one text per pair."""
    if scale == 0:
        return integer_text(unscaled)
    digits = integer_text(abs(unscaled))
    sign = "-" if unscaled < 0 else ""
    exponent = len(digits) - 1 - scale
    if scale > 0 and exponent >= -6:
        if len(digits) <= scale:
            return sign + "0." + digits.rjust(scale, "0")
        return sign + digits[:-scale] + "." + digits[-scale:]
    point = "." if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}{digits[1:]}E{exponent:+d}"


def scaled_value(text: str) -> tuple[int, int]:
    """(unscaled, scale) of a decimal text: the fraction's digits minus the exponent make the scale.

    Gives back the pair of `scaled_text`. Raises ValueError for other text, and for a scale outside 32 bits.
    """
    match = _SCALED.fullmatch(text)
    if match is None:
        raise ValueError("a decimal is written as digits, with an optional fraction and exponent")
    sign, integer, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    scale = len(fraction) - int(exponent)
    if not _MIN_SCALE <= scale <= _MAX_SCALE:
        raise ValueError("a decimal's scale has 32 bits")
    unscaled = _from_digits(integer + fraction)
    return (-unscaled if sign else unscaled), scale


def _as_decimal(value: int, bits: int, powers: dict[int, decimal.Decimal]) -> decimal.Decimal:
    # Halves by bits, so that libmpdec's fast multiplication does the work that str() does in quadratic time.
    if bits <= _SHORT_BITS:
        return decimal.Decimal(value)
    low_bits = bits >> 1
    high = value >> low_bits
    low = value - (high << low_bits)
    # Halves of one size have the same power.
    if low_bits not in powers:
        powers[low_bits] = _EXACT.power(decimal.Decimal(2), low_bits)
    shifted = _EXACT.multiply(_as_decimal(high, bits - low_bits, powers), powers[low_bits])
    return _EXACT.add(shifted, _as_decimal(low, low_bits, powers))


def _from_digits(digits: str) -> int:
    if len(digits) <= _SHORT_DIGITS:
        return int(digits)
    low = len(digits) >> 1
    shift: int = 10**low
    return _from_digits(digits[:-low]) * shift + _from_digits(digits[-low:])
