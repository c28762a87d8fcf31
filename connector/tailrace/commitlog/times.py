"""When a mutation was written, as far as its first update's head says: without a table's definition."""

from __future__ import annotations

from tailrace.commitlog.descriptor import VERSIONS
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import DecodeError

# EncodingStats.TIMESTAMP_EPOCH: 2015-09-22T00:00:00Z in microseconds.
_EPOCH = 1_442_880_000_000_000
_IS_EMPTY = 0x01


def oldest_write(payload: bytes, version: int) -> int | None:
    """The oldest write time in the mutation's first partition update, in microseconds, from its EncodingStats.

    None where it holds nothing that was written, or cannot be read.
    """
    try:
        segment_version = VERSIONS[version]
        _, offset = read_unsigned(payload, 1 if segment_version.metadata_epochs else 0)
        offset += 16
        if segment_version.metadata_epochs:
            _, offset = read_unsigned(payload, offset)
        size, offset = read_unsigned(payload, offset)
        flags = payload[offset + size]
        # An empty partition has no EncodingStats (UnfilteredRowIteratorSerializer writes nothing behind its flags).
        if flags & _IS_EMPTY:
            return None
        delta, _ = read_unsigned(payload, offset + size + 1)
    except (DecodeError, IndexError, KeyError, ValueError):
        # ValueError: a length of more bits than an index of compiled code has.
        return None
    # The difference may be negative: it is taken modulo 2^64.
    written = delta + _EPOCH & (1 << 64) - 1
    return written - (1 << 64) if written >> 63 else written
