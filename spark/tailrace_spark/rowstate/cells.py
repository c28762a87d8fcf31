"""Cells, row markers and shards of counters, each by itself: which of two holds, and what a deletion covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace_schemas.change import EXPIRED_TTL, Deletion, Marker
from tailrace_schemas.errors import TruncatedError

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


@dataclass(slots=True, init=False)
class CellState:
    """One cell without its name: as `tailrace_schemas.change.Cell`, a tombstone has `value` None.

    `path` is set where cells are kept under another key than their paths' own bytes (rowstate.paths). Never changed.
    """

    # Not frozen, and with an `__init__` of its own: mypyc does not compile the one that dataclasses make.

    written: int
    ttl: int | None
    expires: int | None
    value: bytes | None
    path: bytes | None

    def __init__(
        self, written: int, ttl: int | None, expires: int | None, value: bytes | None, path: bytes | None = None
    ) -> None:
        self.written = written
        self.ttl = ttl
        self.expires = expires
        self.value = value
        self.path = path


def covers(deletion: Deletion | None, written: int) -> bool:
    """Whether a deletion covers what was written then; at the same microsecond it does (DeletionTime.deletes)."""
    return deletion is not None and written <= deletion.written


def newer_marker(first: Marker | None, second: Marker) -> Marker:
    """The row marker that wins (LivenessInfo.supersedes): newer write time, then one that never lived, then expiring,
    then later expiry."""
    if first is None:
        return second
    return first if _marker_rank(first) >= _marker_rank(second) else second


def newer_cell(first: CellState, second: CellState) -> CellState:
    """The cell that wins (Cells.resolveRegular of 5.0), with its own path where equal paths differ in bytes.

    The newer write time wins, then a tombstone or expiring cell over a plain one, then a tombstone over an expiring
    one. Then the later local deletion time or expiry, the smaller TTL, the larger bytes, unsigned.
    """
    if first.written != second.written:
        return first if first.written > second.written else second
    return first if _cell_rank(first) >= _cell_rank(second) else second


def _marker_rank(marker: Marker) -> tuple[int, bool, bool, int, int]:
    # At a full tie Cassandra keeps the first one seen. The smaller TTL, as among cells, makes the answer independent of
    # the order of arrival, without which merging would not be commutative.
    never_lived = marker.ttl == EXPIRED_TTL
    return marker.written, never_lived, marker.ttl is not None, marker.expires or 0, -(marker.ttl or 0)


def _cell_rank(cell: CellState) -> tuple[bool, bool, int, int, bytes, bytes]:
    # CASSANDRA-14592: whether an expiring cell still has its value depends on the clock of whoever reconciles. So
    # values count only after expiry and TTL, and a tombstone of the same time wins over a cell that becomes one anyway.
    tombstone = cell.value is None
    ends = tombstone or cell.ttl is not None
    # The path comes last: it differs only where the type compares unequal bytes as equal, and Cassandra keeps the first
    # one seen (Cells.reconcile of ComplexColumnData).
    return ends, tombstone, cell.expires or 0, -(cell.ttl or 0), cell.value or b"", cell.path or b""


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
