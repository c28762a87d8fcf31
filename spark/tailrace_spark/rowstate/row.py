"""The state of one row, merged exactly as Cassandra reconciles it (docs/row-state.md has the rules).

Merging is commutative, associative and idempotent (tests/unit/spark/rowstate/test_row.py). So copies, redeliveries and
late writes end in the same state whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from tailrace_schemas.change import EXPIRED_TTL, Cell, Change, Deletion, Marker, Op
from tailrace_schemas.cql.order import BY_BYTES, sortable
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.cells import CellState, covers, keep_newest_shards, newer_cell, newer_marker, shards
from tailrace_spark.rowstate.deletions import stronger, supersedes

NO_DELETION: Final = -(2**63)
"""The local time of no deletion: less than any."""
_EARLIEST: Final = -(2**63) + 1
"""The write time before all others that clients may choose."""
PathKey = Callable[[bytes], bytes]


@dataclass(slots=True, init=False)
class ColumnState:
    """One column: its cells by path (None for a simple column), and the deletion of a whole multi-cell column.

    Paths that Cassandra compares as equal are one (rowstate.paths). A `counter` has its shards as cells
    (rowstate.counters), and under None its tombstone.
    """

    deletion: Deletion | None
    cells: dict[bytes | None, CellState]
    counter: bool

    def __init__(
        self,
        deletion: Deletion | None = None,
        cells: dict[bytes | None, CellState] | None = None,
        counter: bool = False,
    ) -> None:
        self.deletion = deletion
        self.cells = {} if cells is None else cells
        self.counter = counter


class Newest(NamedTuple):
    """The newest time of a row: the largest write time of its marker, cells and deletions, its own and its columns'.

    With it goes the assignment of the change that wrote it, empty where unknown. `local` is the local time of the
    latest of the deletions written at that microsecond, less than any without one. They order as changes win.
    """

    # The rule of the newest time is this one alone: `codec.newest` and `plain.plain_newest` read its result, from a
    # state and from bytes. The time of a record is another: the marker's, else the deletion's, else the newest cell's
    # (`tailrace_schemas.change.record_times`).
    #
    # Of one microsecond deletions outlive data (DeletionTime.deletes: `timestamp <= markedForDeleteAt`). So with
    # `local` the winner is there as long as anything of the row is, whatever else gets deleted, in whatever order.

    written: int
    local: int
    assignment: Assignment | tuple[()] = ()


@dataclass(slots=True, init=False)
class RowState:
    """One row or static row: row marker, row deletion, columns by the bytes that name them in the log.

    `newest` follows from the others, but for its assignment; None for an empty state. A `strict` row, of some views, is
    there only while its marker lives (`Table.is_strict`).
    Owned by one thread; `absorb` and `shadow` change it in place, `merge` does not touch its arguments.
    """

    # Kept in one form: data that the row's own deletions cover is left out, as Row.Merger and a memtable leave it out.

    marker: Marker | None
    deletion: Deletion | None
    columns: dict[bytes, ColumnState]
    newest: Newest | None
    strict: bool

    def __init__(
        self,
        marker: Marker | None = None,
        deletion: Deletion | None = None,
        columns: dict[bytes, ColumnState] | None = None,
        newest: Newest | None = None,
        strict: bool = False,
    ) -> None:
        self.marker = marker
        self.deletion = deletion
        self.columns = {} if columns is None else columns
        self.newest = _newest(self) if newest is None else newest
        self.strict = strict

    @property
    def empty(self) -> bool:
        """Whether the row has neither data nor tombstones, so that nothing has to be stored."""
        return self.marker is None and self.deletion is None and not self.columns

    @property
    def assignment(self) -> Assignment | None:
        """The assignment of the change that wrote the newest of it; None where that is not known."""
        return (self.newest.assignment or None) if self.newest is not None else None

    def assign(self, assignment: Assignment | None) -> None:
        """Set the assignment of the change that wrote the newest of it."""
        if self.newest is not None:
            written, local, _ = self.newest
            self.newest = Newest(written, local, () if assignment is None else assignment)

    def settle(self) -> None:
        """Recompute `newest` after something was removed; its assignment stays if the newest survived."""
        newest = _newest(self)
        if newest is None or self.newest is None or newest[:2] != self.newest[:2]:
            self.newest = newest

    def next_expiry(self, covering: Deletion | None = None, after: int = -1) -> int | None:
        """When the visible row may change next by expiry alone, in seconds since the epoch; None: not any more.

        `covering` is the strongest partition or range deletion, or truncation, over the row. Only what expires later
        than `after` counts. Then nothing may be seen to change, where cells outlive the marker or have no column.
        """
        active = stronger(self.deletion, covering)
        soonest: int | None = None
        for column in self.columns.values():
            floor = stronger(active, column.deletion)
            for cell in column.cells.values():
                if cell.value is None or cell.ttl is None or cell.expires is None or covers(floor, cell.written):
                    continue
                if cell.expires > after and (soonest is None or cell.expires < soonest):
                    soonest = cell.expires
        marker = self.marker
        if marker is None or marker.ttl == EXPIRED_TTL or covers(active, marker.written):
            return None if self.strict else soonest
        if marker.expires is None:
            return soonest
        if marker.expires <= after:
            # A strict row ended with its marker (Row.hasLiveData with enforceStrictLiveness).
            return None if self.strict else soonest
        # Cells may outlive it, and keep the row (Row.hasLiveData). Which of them still have a column is not known here.
        return marker.expires if soonest is None else min(soonest, marker.expires)

    def absorb(self, other: RowState) -> None:
        """Merge `other` into this state (Row.Merger.merge). `other` stays as it is, and shares nothing with this."""
        self.strict = self.strict or other.strict
        newest = self.newest
        if newest is None or (other.newest is not None and other.newest > newest):
            newest = other.newest
        # The deletion first, as Row.Merger does: what it covers must not take part in the rest.
        deletion = stronger(self.deletion, other.deletion)
        if deletion != self.deletion and deletion is not None:
            self.shadow(deletion)
            self.deletion = deletion
        if other.marker is not None and not covers(deletion, other.marker.written):
            self.marker = newer_marker(self.marker, other.marker)
        for name, column in other.columns.items():
            self._absorb_column(name, column)
        self.newest = newest  # set last: shadowing may have left nothing for a moment

    def shadow(self, covering: Deletion) -> None:
        """Remove what a deletion from outside (partition, range) covers, this row's own deletion included."""
        # Data written at the deletion's own microsecond is covered (DeletionTime.deletes). Another deletion of that
        # time goes only where it does not supersede, by its local time (DeletionTime.supersedes).
        if self.deletion is not None and not supersedes(self.deletion, covering):
            self.deletion = None
        if self.marker is not None and self.marker.written <= covering.written:
            self.marker = None
        for name in list(self.columns):
            column = self.columns[name]
            if column.deletion is not None and not supersedes(column.deletion, covering):
                column.deletion = None
            column.cells = {path: cell for path, cell in column.cells.items() if cell.written > covering.written}
            if column.deletion is None and not column.cells:
                del self.columns[name]
        if self.empty:
            self.newest = None

    def _absorb_column(self, name: bytes, other: ColumnState) -> None:
        """Merge a column: the strongest deletion first, then the cells that it leaves, by path."""
        # ColumnDataReducer.getReduced: a collection's deletion counts only where it supersedes the row's.
        column = self.columns.get(name) or ColumnState(counter=other.counter)
        deletion = stronger(column.deletion, other.deletion)
        if deletion is not None and self.deletion is not None and not supersedes(deletion, self.deletion):
            deletion = None
        if deletion is not None and deletion != column.deletion:
            written = deletion.written
            column.cells = {path: cell for path, cell in column.cells.items() if cell.written > written}
        column.deletion = deletion
        floor = deletion or self.deletion
        for path, cell in other.cells.items():
            if not covers(floor, cell.written):
                existing = column.cells.get(path)
                column.cells[path] = cell if existing is None else newer_cell(existing, cell)
        if column.counter:
            # A counter's tombstone, under None, stays beside the shards: it wins at any time (Cells.resolveCounter).
            keep_newest_shards(column.cells)
        if column.deletion is not None or column.cells:
            self.columns[name] = column


def merge(first: RowState, second: RowState) -> RowState:
    """The merge of both states: commutative, associative, idempotent."""
    merged = RowState()
    merged.absorb(first)
    merged.absorb(second)
    return merged


def state_of(change: Change, assignment: Assignment | None = None) -> RowState:
    """The state that one change of a row or static row makes by itself, with its assignment.

    Raises DecodeError for a counter or an element that is no value of its type. Raises ValueError for a change that is
    not of one row: partition and range deletions belong to rowstate.deletions, truncations to rowstate.truncation.
    """
    if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE):
        raise ValueError(f"{change.table}: {change.op.value} is not a change of one row")
    columns: dict[bytes, ColumnState] = {}
    for deleted in change.column_deletions:
        column = columns.setdefault(deleted.column.name_bytes, ColumnState())
        column.deletion = stronger(column.deletion, deleted.deletion)
    for cell in change.cells:
        name = cell.column.name_bytes
        column = columns.get(name) or ColumnState(counter=cell.column.type.kind == "counter")
        _add(column, cell)
        if column.cells:  # a counter's value may have no shards
            columns[name] = column
    marker, strict = change.marker, change.table.is_strict
    if strict and change.op is Op.READ:
        marker = Marker(_EARLIEST)  # it lives, as SELECT gave the row; any marker of the log knows more
    state = RowState(marker, None, columns, strict=strict)
    if change.deletion is not None or change.column_deletions:
        # Cassandra writes the deletion of an overwritten collection one microsecond before its new elements
        # (UpdateParameters.setComplexDeletionTimeForOverwrite). Absorbing leaves out what deletions do cover.
        uncovered = RowState(deletion=change.deletion)
        uncovered.absorb(state)
        state = uncovered
    if assignment is not None:
        state.assign(assignment)
    return state


def _add(column: ColumnState, cell: Cell) -> None:
    if column.counter and cell.value is not None:
        for shard in shards(cell.value):
            _put(column.cells, shard, CellState(cell.written, None, None, b""))
        keep_newest_shards(column.cells)
        return
    path, own_path = cell.path, None
    if path is not None:
        key = path_key(cell.column.type)
        if key is not None:
            path, own_path = key(path), path
    _put(column.cells, path, CellState(cell.written, cell.ttl, cell.expires, cell.value, own_path))


def _put(cells: dict[bytes | None, CellState], path: bytes | None, cell: CellState) -> None:
    existing = cells.get(path)
    cells[path] = cell if existing is None else newer_cell(existing, cell)


def _newest(state: RowState) -> Newest | None:
    if state.empty:
        return None
    times = [cell.written for column in state.columns.values() for cell in column.cells.values()]
    deletions = [column.deletion for column in state.columns.values() if column.deletion is not None]
    if state.marker is not None:
        times.append(state.marker.written)
    if state.deletion is not None:
        deletions.append(state.deletion)
    if not deletions:
        return Newest(max(times), NO_DELETION) if times else None
    strongest = max((candidate.written, candidate.local) for candidate in deletions)
    data = max(times, default=strongest[0])
    return Newest(*strongest) if data <= strongest[0] else Newest(data, NO_DELETION)


@lru_cache(maxsize=4096)
def path_key(cql_type: CqlType) -> PathKey | None:
    """The key under which a collection's element is kept: one key for all bytes that Cassandra compares as equal.

    A function from a path of this multi-cell type to its key; None where a path is its own key.

    The function raises DecodeError for a path that is no value of the type.
    """
    # A set's elements and a map's keys are compared by their type (CollectionType.cellPathComparator). So 1.0 and 1.00
    # in a set of decimals are one element, and so are a user type's value and the same with nulls at its end.
    # A list's time UUIDs and a user type's field numbers are equal only where their bytes are.
    if cql_type.kind not in ("map", "set") or cql_type.args[0].kind in BY_BYTES:
        return None
    element = cql_type.args[0]
    return lambda path: sortable(element, path, False)
