"""When a mutation was written, as far as its first update's head says: without a table's definition."""

from __future__ import annotations

from tailrace.commitlog.descriptor import VERSIONS
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import DecodeError

_EPOCH = 1_442_880_000_000_000
_IS_EMPTY = 0x01


def oldest_write(payload: bytes, version: int) -> int | None:
    """The oldest write time in the mutation's first partition update, in microseconds, from its EncodingStats.

    None where it holds nothing that was written, or cannot be read.
    """
    try:
        known = VERSIONS[version]
        _, at = read_unsigned(payload, 1 if known.epochs else 0)
        at += 16
        if known.epochs:
            _, at = read_unsigned(payload, at)
        size, at = read_unsigned(payload, at)
        flags = payload[at + size]
        if flags & _IS_EMPTY:
            return None
        delta, _ = read_unsigned(payload, at + size + 1)
    except (DecodeError, IndexError, KeyError):
        return None
    # The difference may be negative: it is taken modulo 2^64.
    written = delta + _EPOCH & (1 << 64) - 1
    return written - (1 << 64) if written >> 63 else written
