"""The canonical text of IP addresses, and back: RFC 5952, the same on every platform and Python version."""

from __future__ import annotations

import ipaddress
from typing import Final

_MAPPED: Final = bytes(10) + b"\xff\xff"


def address_text(data: bytes) -> str:
    """The text of 4 or 16 bytes: dotted decimal, or lower-case groups with the longest run of zeros as "::".

    An IPv4 address inside IPv6 stays IPv6 (::ffff:1.2.3.4), so that the text leads back to its 16 bytes.
    """
    if len(data) == 4:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}"
    if data.startswith(_MAPPED):
        return f"::ffff:{data[12]}.{data[13]}.{data[14]}.{data[15]}"
    groups = [data[offset] << 8 | data[offset + 1] for offset in range(0, 16, 2)]
    start, length = _longest_zeros(groups)
    if length < 2:
        return ":".join(f"{group:x}" for group in groups)
    head = ":".join(f"{group:x}" for group in groups[:start])
    tail = ":".join(f"{group:x}" for group in groups[start + length :])
    return f"{head}::{tail}"


def address_bytes(text: str) -> bytes:
    """The 4 or 16 bytes of an address; raises ValueError for other text, also for one with a zone."""
    try:
        if ":" not in text:
            return ipaddress.IPv4Address(text).packed
        if "%" not in text:
            return ipaddress.IPv6Address(text).packed
    except ipaddress.AddressValueError:
        pass
    raise ValueError("inet takes an IPv4 or IPv6 address without a zone")


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    best_start = best_length = length = 0
    for index, group in enumerate(groups):
        length = length + 1 if group == 0 else 0
        if length > best_length:
            best_start, best_length = index - length + 1, length
    return best_start, best_length
