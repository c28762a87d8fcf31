"""Counters: the shards of a context as cells of their own, which of them hold, and what they add up to.

A counter is the sum of its shards, one for each replica that led a write; a write logs its leader's shard alone, with
the leader's new count. Of one shard the later clock holds, so counts are not added up twice however often they come.

A shard is kept as a cell whose path is the shard itself, 33 bytes, and whose value has none:

    id: 16 bytes, kind: 00 remote, 01 local, 02 global, clock and count: 8 bytes each, above 2^63 as unsigned
"""

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


def shards(context: bytes) -> list[bytes]:
    """The shards of a counter's value, as the paths under which they are kept (db.context.CounterContext).

    A header with a negative count says that local shards are remote ones by now (clearAllLocal). Raises
    TruncatedError where the bytes end within the header or a shard.
    """
    if not context:
        return []
    if len(context) < 2:
        raise TruncatedError("a counter context has 2 bytes or more")
    elements = int.from_bytes(context[:2], "big", signed=True)
    start = 2 + 2 * abs(elements)
    if start > len(context) or (len(context) - start) % _SHARD:
        raise TruncatedError(f"a counter context of {len(context)} bytes ends within its header or a shard")
    kinds: dict[int, bytes] = {}
    for offset in range(2, start, 2):
        element = int.from_bytes(context[offset : offset + 2], "big", signed=True)
        if element < 0:
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


def keep_newest_shards(cells: dict[bytes | None, CellState]) -> None:
    """Leave out shards that another of their id exceeds: in clock, and was not written before.

    The later clock holds, at a tie the larger count; global shards hold over local ones, those over remote ones
    (CounterContext.compare; two local shards are added up there, but those are in data files from before 2.1 only,
    never in a log). One with a lesser clock that was written later is kept: a deletion may still cover the other.
    """
    if len(cells) < 2:
        return
    paths = sorted([path for path in cells if path is not None], reverse=True)
    name = b""
    written = 0
    for path in paths:
        cell = cells[path]
        if path[:_ID] == name and cell.written <= written:
            del cells[path]
        else:
            name, written = path[:_ID], cell.written


def total(paths: list[bytes]) -> int:
    """What these shards add up to, in Java's 64 bits (CounterContext.total): of each id the greatest."""
    newest: dict[bytes, bytes] = {}
    for path in paths:
        name = path[:_ID]
        if name not in newest or path > newest[name]:
            newest[name] = path
    counted = sum([int.from_bytes(path[-8:], "big") - _ZERO for path in newest.values()])
    return (counted + _ZERO) % _ALL - _ZERO


def _turned(number: bytes) -> bytes:
    return bytes((number[0] ^ _TURNED,)) + number[1:]
