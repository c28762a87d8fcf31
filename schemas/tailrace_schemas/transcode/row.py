"""One row as numbers: write times, and where in a mutation's bytes each value stands."""

from __future__ import annotations

from typing import Final

from librt.vecs import extend, vec
from mypy_extensions import i64

NONE: Final = -(1 << 62)
"""Instead of a ttl or an expiry: there is none."""
NULL: Final = -1
"""Instead of a start: a tombstone among cells, null among clustering values, no path at a simple cell."""

_ROOM: Final = 16
# A row larger than this gives its room back when the next one is read.
_KEPT: Final = 4096


class RowCells:
    """What one row of a partition update holds; filled again for each row, so that nothing is allocated.

    Cells stand in wire order, those of a column together. `column[i]` is an index into the header's columns, `written`
    microseconds, `ttl` seconds or NONE. `expires` is seconds since the epoch or NONE; of a tombstone it is the local
    deletion time. `path_start` to `path_end` and `start` to `end` are offsets into the payload, or NULL. Likewise the
    deletions of multi-cell columns, and the clustering values. Only the first `count`, `deletions` and `clusterings`
    count. `row_written` and its like are the marker's where `marked`, `deleted_written` the row's own deletion's where
    `deleted`.
    """

    def __init__(self) -> None:
        self.column = _numbers(_ROOM)
        self.written = _numbers(_ROOM)
        self.ttl = _numbers(_ROOM)
        self.expires = _numbers(_ROOM)
        self.path_start = _numbers(_ROOM)
        self.path_end = _numbers(_ROOM)
        self.start = _numbers(_ROOM)
        self.end = _numbers(_ROOM)
        self._room: i64 = _ROOM
        self.deletion_column = _numbers(_ROOM)
        self.deletion_written = _numbers(_ROOM)
        self.deletion_local = _numbers(_ROOM)
        self._deletion_room: i64 = _ROOM
        self.clustering_start = _numbers(_ROOM)
        self.clustering_end = _numbers(_ROOM)
        self._clustering_room: i64 = _ROOM
        self.clear()

    def clear(self) -> None:
        """Forget the row before."""
        self.count: i64 = 0
        self.deletions: i64 = 0
        self.clusterings: i64 = 0
        self.marked = False
        self.row_written: i64 = 0
        self.row_ttl: i64 = NONE
        self.row_expires: i64 = NONE
        self.deleted = False
        self.deleted_written: i64 = 0
        self.deleted_local: i64 = 0
        if self._room > _KEPT:
            self._make_room(_ROOM)

    def empty(self) -> bool:
        """Whether the row says nothing at all."""
        return not (self.count or self.deletions or self.marked or self.deleted)

    def add_cell(self, column: i64, written: i64, ttl: i64, expires: i64) -> i64:
        """A cell without path and value; its place."""
        index = self.count
        if index == self._room:
            self._double()
        self.column[index] = column
        self.written[index] = written
        self.ttl[index] = ttl
        self.expires[index] = expires
        self.path_start[index] = NULL
        self.path_end[index] = NULL
        self.start[index] = NULL
        self.end[index] = NULL
        self.count = index + 1
        return index

    def add_deletion(self, column: i64, written: i64, local: i64) -> None:
        """The deletion of a whole multi-cell column."""
        index = self.deletions
        if index == self._deletion_room:
            self.deletion_column = extend(self.deletion_column, _numbers(index))
            self.deletion_written = extend(self.deletion_written, _numbers(index))
            self.deletion_local = extend(self.deletion_local, _numbers(index))
            self._deletion_room = 2 * index
        self.deletion_column[index] = column
        self.deletion_written[index] = written
        self.deletion_local[index] = local
        self.deletions = index + 1

    def add_clustering(self, start: i64, end: i64) -> None:
        """The next clustering value."""
        index = self.clusterings
        if index == self._clustering_room:
            self.clustering_start = extend(self.clustering_start, _numbers(index))
            self.clustering_end = extend(self.clustering_end, _numbers(index))
            self._clustering_room = 2 * index
        self.clustering_start[index] = start
        self.clustering_end[index] = end
        self.clusterings = index + 1

    def _double(self) -> None:
        room = self._room
        self.column = extend(self.column, _numbers(room))
        self.written = extend(self.written, _numbers(room))
        self.ttl = extend(self.ttl, _numbers(room))
        self.expires = extend(self.expires, _numbers(room))
        self.path_start = extend(self.path_start, _numbers(room))
        self.path_end = extend(self.path_end, _numbers(room))
        self.start = extend(self.start, _numbers(room))
        self.end = extend(self.end, _numbers(room))
        self._room = 2 * room

    def _make_room(self, room: i64) -> None:
        self.column = _numbers(room)
        self.written = _numbers(room)
        self.ttl = _numbers(room)
        self.expires = _numbers(room)
        self.path_start = _numbers(room)
        self.path_end = _numbers(room)
        self.start = _numbers(room)
        self.end = _numbers(room)
        self._room = room


def _numbers(count: i64) -> vec[i64]:
    return vec[i64]([0] * count)
