"""Cells and row markers, each by itself: which of two holds, and what a deletion covers."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace_schemas.change import Deletion, Marker


@dataclass(slots=True, init=False)
class CellState:
    """One cell without its name: as `tailrace_schemas.change.Cell`, a tombstone has `value` None.

    `path` is there where cells are kept under another key than their paths' own bytes (rowstate.paths). Never
    changed: it is not frozen, and has an `__init__` of its own, since one that dataclasses make is not compiled.
    """

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
    """The row marker that holds: newer write time, then expiring, then later expiry (LivenessInfo.supersedes).

    At a full tie Cassandra keeps whichever came first; the smaller TTL, as among cells, makes it one answer.
    """
    if first is None:
        return second
    return first if _marker_rank(first) >= _marker_rank(second) else second


def newer_cell(first: CellState, second: CellState) -> CellState:
    """The cell that holds (Cells.resolveRegular of 5.0).

    Newer write time; then tombstone or expiring over plain; tombstone over expiring; later local deletion time or
    expiry; smaller TTL; larger bytes, unsigned. Of equal paths in other bytes the winner's stays; at a full tie, where
    Cassandra keeps whichever came first, the larger makes it one answer.
    """
    if first.written != second.written:
        return first if first.written > second.written else second
    return first if _cell_rank(first) >= _cell_rank(second) else second


def _marker_rank(marker: Marker) -> tuple[int, bool, int, int]:
    return marker.written, marker.ttl is not None, marker.expires or 0, -(marker.ttl or 0)


def _cell_rank(cell: CellState) -> tuple[bool, bool, int, int, bytes, bytes]:
    tombstone = cell.value is None
    ends = tombstone or cell.ttl is not None
    return ends, tombstone, cell.expires or 0, -(cell.ttl or 0), cell.value or b"", cell.path or b""
