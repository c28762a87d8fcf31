"""Cells and row markers, each by itself: which of two holds, and what a deletion covers."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace_schemas.change import EXPIRED_TTL, Deletion, Marker


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
