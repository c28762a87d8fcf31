"""Counters: the shards of a context as cells of their own, which of them win, and their sum."""

# A counter is the sum of its shards, one for each replica that led a write (CounterContext). A write logs the shard of
# its leader alone, with the leader's new count. Of one shard the later clock wins, so a redelivered count is not added
# up twice.
#
# A shard is kept as a cell whose path is the shard itself, 33 bytes, and whose value is empty:
#
#   id: 16 bytes, kind: 00 remote, 01 local, 02 global, clock and count: 8 bytes each, above 2^63 as unsigned
#
# So a shard is greater than another of its id exactly where its bytes are.
#
# What SELECT gave of a counter is a shard too, of an id that no node has. It stands for all others, and its clock is
# the time of reading.

from __future__ import annotations

from typing import Final

from tailrace_schemas.errors import TruncatedError
from tailrace_spark.rowstate.cells import CellState

_ID: Final = 16
_SHARD: Final = 32
_REMOTE: Final = b"\x00"
_LOCAL: Final = b"\x01"
_GLOBAL: Final = b"\x02"
_TURNED: Final = 0x80  # the sign bit, turned round: so numbers compare as their bytes do
_ZERO: Final = 1 << 63
_ALL: Final = 1 << 64
_TOTAL: Final = b"\xff" * _ID
"""The id of the shard that is a total."""


def shards(context: bytes) -> list[bytes]:
    """The shards of a counter's value, as the paths under which they are kept (db.context.CounterContext).

    Raises TruncatedError where the bytes end within the header or a shard.
    """
    if not context:
        return []
    if len(context) < 2:
        raise TruncatedError("a counter context has 2 bytes or more")
    # A negative count of header elements marks local shards as remote ones by now (CounterContext.clearAllLocal).
    elements = int.from_bytes(context[:2], "big", signed=True)
    start = 2 + 2 * abs(elements)
    if start > len(context) or (len(context) - start) % _SHARD:
        raise TruncatedError(f"a counter context of {len(context)} bytes ends within its header or a shard")
    kinds: dict[int, bytes] = {}
    for offset in range(2, start, 2):
        element = int.from_bytes(context[offset : offset + 2], "big", signed=True)
        if element < 0:  # a global shard: its index plus Short.MIN_VALUE (CounterContext.ContextState)
            kinds[element + 0x8000] = _GLOBAL
        elif elements > 0:
            kinds[element] = _LOCAL
    paths: list[bytes] = []
    for index, offset in enumerate(range(start, len(context), _SHARD)):
        name, clock, count = (
            context[offset : offset + 16],
            context[offset + 16 : offset + 24],
            context[offset + 24 : offset + 32],
        )
        paths.append(name + kinds.get(index, _REMOTE) + _turned(clock) + _turned(count))
    return paths


def context_of_total(count: int, read: int) -> bytes:
    """The value of a counter that SELECT gave at a time, in microseconds: it stands for all shards."""
    return b"\x00\x00" + _TOTAL + read.to_bytes(8, "big") + count.to_bytes(8, "big", signed=True)


def keep_newest_shards(cells: dict[bytes | None, CellState]) -> None:
    """Leave out shards that another of their id exceeds: in clock, and was not written before.

    The later clock wins, at a tie the larger count. Global shards win over local ones, those over remote ones
    (CounterContext.compare).
    """
    # CounterContext.merge adds up two local shards. Those are in data files from before Cassandra 2.1, never in a log.
    if len(cells) < 2:
        return
    paths = sorted([path for path in cells if path is not None], reverse=True)
    name = b""
    written = 0
    for path in paths:
        cell = cells[path]
        # One with a lesser clock that was written later stays: a deletion may still cover the greater one alone.
        if path[:_ID] == name and cell.written <= written:
            del cells[path]
        else:
            name, written = path[:_ID], cell.written


def total(paths: list[bytes]) -> int:
    """The counter's value: the sum of the greatest shard of each id, in Java's 64 bits (CounterContext.total)."""
    newest: dict[bytes, bytes] = {}
    for path in paths:
        name = path[:_ID]
        if name not in newest or path > newest[name]:
            newest[name] = path
    if _TOTAL in newest:
        newest = {_TOTAL: newest[_TOTAL]}
    # Java's long wraps, and a counter that overflowed on a node must show the same here.
    counted = sum([int.from_bytes(path[-8:], "big") - _ZERO for path in newest.values()])
    return (counted + _ZERO) % _ALL - _ZERO


def _turned(number: bytes) -> bytes:
    return bytes((number[0] ^ _TURNED,)) + number[1:]
