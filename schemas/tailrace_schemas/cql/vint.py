"""Cassandra's variable-length integers, unsigned and zig-zag: read at an offset, or written in the shortest form."""

from __future__ import annotations

from typing import Final

from tailrace_schemas.errors import TruncatedError

# First byte -> further bytes: its number of leading one bits (VIntCoding.numberOfExtraBytesToRead).
_EXTRA: Final[bytes] = bytes(8 - (first ^ 0xFF).bit_length() for first in range(256))


def read_unsigned(data: bytes, offset: int) -> tuple[int, int]:
    """The unsigned vint at `offset`, as (value 0..2^64-1, offset behind it).

    VIntCoding.readUnsignedVInt; longer forms than the shortest are accepted, as there. Java keeps the value in a signed
    long, so differences are to be taken modulo 2^64. Raises TruncatedError when `data` ends first.
    """
    if not 0 <= offset < len(data):
        raise TruncatedError("a vint is missing", offset=offset)
    first = data[offset]
    if first < 0x80:
        return first, offset + 1
    extra = _EXTRA[first]
    end = offset + 1 + extra
    if end > len(data):
        raise TruncatedError(f"a vint of {extra + 1} bytes ends after {len(data) - offset}", offset=offset)
    value = int.from_bytes(data[offset + 1 : end], "big")
    return value | (first & (0xFF >> extra)) << (8 * extra), end


def read_signed(data: bytes, offset: int) -> tuple[int, int]:
    """The zig-zag vint at `offset`, as (value -2^63..2^63-1, offset behind it); raises TruncatedError.

    VIntCoding.readVInt: 0, -1, 1, -2, ... stand as 0, 1, 2, 3, ...
    """
    coded, end = read_unsigned(data, offset)
    return (coded >> 1) ^ -(coded & 1), end


def write_unsigned(value: int) -> bytes:
    """The shortest vint of `value`; raises ValueError outside 0..2^64-1 (VIntCoding.writeUnsignedVInt)."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"a vint holds 0 to 2^64-1, not {value}")
    if value < 0x80:
        return bytes((value,))
    # Each byte carries 7 bits of payload but the ninth, which frees the first byte's last marker bit.
    extra = min(8, (value.bit_length() - 1) // 7)
    if extra == 8:
        return b"\xff" + value.to_bytes(8, "big")
    marker = (0xFF00 >> extra) & 0xFF
    return (value | marker << (8 * extra)).to_bytes(extra + 1, "big")


def write_signed(value: int) -> bytes:
    """The shortest zig-zag vint of `value`; raises ValueError outside -2^63..2^63-1 (VIntCoding.writeVInt)."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"a signed vint holds -2^63 to 2^63-1, not {value}")
    return write_unsigned(value << 1 if value >= 0 else ~(value << 1))
