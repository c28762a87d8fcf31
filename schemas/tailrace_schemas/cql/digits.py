"""Exact decimal text of integers and scaled integers of any size, as Java's BigInteger and BigDecimal print them."""

from __future__ import annotations

import decimal
import re
from typing import Final

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


def integer_text(value: int) -> str:
    """The decimal digits of `value`, with a minus sign where it is negative; any size."""
    if value.bit_length() <= _SHORT_BITS:
        return str(value)
    digits = format(_as_decimal(abs(value), value.bit_length()), "f")
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


def _as_decimal(value: int, bits: int) -> decimal.Decimal:
    # Halves by bits, so that libmpdec's fast multiplication does the work that str() does in quadratic time.
    if bits <= _SHORT_BITS:
        return decimal.Decimal(value)
    low_bits = bits >> 1
    high = value >> low_bits
    low = value - (high << low_bits)
    shifted = _EXACT.multiply(_as_decimal(high, bits - low_bits), _EXACT.power(decimal.Decimal(2), low_bits))
    return _EXACT.add(shifted, _as_decimal(low, low_bits))


def _from_digits(digits: str) -> int:
    if len(digits) <= _SHORT_DIGITS:
        return int(digits)
    low = len(digits) >> 1
    shift: int = 10**low
    return _from_digits(digits[:-low]) * shift + _from_digits(digits[-low:])
