"""Everything known about one row, merged exactly as Cassandra reconciles.

A state is kept in one form: what its own deletions cover is left out, as Cassandra's memtable leaves it out. Merging
is commutative, associative and idempotent (tests/unit/spark/rowstate/test_row.py), so copies, re-deliveries and late
writes end in the same state whatever their order. Not merged yet: counters and truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tailrace_schemas.change import Change, Deletion, Marker, Op
from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.cells import CellState, covers, newer_cell, newer_marker
from tailrace_spark.rowstate.deletions import stronger, supersedes

_NO_DELETION: Final = -(2**63)


@dataclass(slots=True)
class ColumnState:
    """One column: its cells by path (None for a simple column), and the deletion of a whole multi-cell column."""

    deletion: Deletion | None = None
    cells: dict[bytes | None, CellState] = field(default_factory=dict)


class Newest(NamedTuple):
    """The newest of a row: its write time, and what the change that wrote it was assigned, empty where unknown.

    They order as changes win. `local` is the local time of the latest of the deletions written at that microsecond,
    which outlive the data written with them; without one it is less than any. So whatever else of the row gets
    deleted, and in whatever order, the winner is there as long as anything is.
    """

    written: int
    local: int
    assignment: Assignment | tuple[()] = ()


@dataclass(slots=True)
class RowState:
    """One row or static row: row marker, row deletion, columns by the bytes that name them in the log.

    `newest` follows from the others, but for its assignment; None for an empty state.
    Owned by one thread; `absorb` and `shadow` change it in place, `merge` does not touch its arguments.
    """

    marker: Marker | None = None
    deletion: Deletion | None = None
    columns: dict[bytes, ColumnState] = field(default_factory=dict)
    newest: Newest | None = None

    def __post_init__(self) -> None:
        if self.newest is None:
            self.newest = _newest(self)

    @property
    def empty(self) -> bool:
        """Whether nothing is known any more, so that nothing has to be kept."""
        return self.marker is None and self.deletion is None and not self.columns

    @property
    def assignment(self) -> Assignment | None:
        """What the change that wrote the newest of it was assigned; None where that is not known."""
        return (self.newest.assignment or None) if self.newest is not None else None

    def assign(self, assignment: Assignment | None) -> None:
        """Note what the change that wrote the newest of it was assigned."""
        if self.newest is not None:
            self.newest = self.newest._replace(assignment=assignment or ())

    def absorb(self, other: RowState) -> None:
        """Take in what `other` knows (Row.Merger.merge). `other` is left as it is, and shares nothing with this."""
        newest = self.newest
        if newest is None or (other.newest is not None and other.newest > newest):
            newest = other.newest
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
        """Leave out what a deletion from outside (partition, range) covers, this row's own deletion included."""
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
        """ColumnDataReducer.getReduced: the strongest deletion first, then the cells that it leaves, by path."""
        column = self.columns.get(name) or ColumnState()
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
                known = column.cells.get(path)
                column.cells[path] = cell if known is None else newer_cell(known, cell)
        if column.deletion is not None or column.cells:
            self.columns[name] = column


def merge(first: RowState, second: RowState) -> RowState:
    """What both states know together: commutative, associative, idempotent."""
    merged = RowState()
    merged.absorb(first)
    merged.absorb(second)
    return merged


def state_of(change: Change, assignment: Assignment | None = None) -> RowState:
    """What one change of a row or static row says, and what it was assigned.

    Raises UnsupportedError for counters, and ValueError for a change that is not of one row (partition and range
    deletions belong to tailrace_spark.rowstate.deletions).
    """
    if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE):
        raise ValueError(f"{change.table}: {change.op.value} is not a change of one row")
    if change.table.is_counter:
        raise UnsupportedError(f"{change.table}: counter tables are not merged yet; leave the table out of the stream")
    columns: dict[bytes, ColumnState] = {}
    for deleted in change.column_deletions:
        column = columns.setdefault(deleted.column.name_bytes, ColumnState())
        column.deletion = stronger(column.deletion, deleted.deletion)
    for cell in change.cells:
        name = cell.column.name_bytes
        said = CellState(cell.written, cell.ttl, cell.expires, cell.value)
        there = columns.get(name)
        if there is None:
            columns[name] = ColumnState(None, {cell.path: said})
        else:
            known = there.cells.get(cell.path)
            there.cells[cell.path] = said if known is None else newer_cell(known, said)
    state = RowState(change.marker, None, columns)
    if change.deletion is not None or change.column_deletions:
        # Deletions cover some of it: absorbing leaves that out.
        uncovered = RowState(deletion=change.deletion)
        uncovered.absorb(state)
        state = uncovered
    if assignment is not None:
        state.assign(assignment)
    return state


def _newest(state: RowState) -> Newest | None:
    times = [cell.written for column in state.columns.values() for cell in column.cells.values()]
    deletions = [column.deletion for column in state.columns.values() if column.deletion is not None]
    if state.marker is not None:
        times.append(state.marker.written)
    if state.deletion is not None:
        deletions.append(state.deletion)
    if not deletions:
        return Newest(max(times), _NO_DELETION) if times else None
    strongest = max((part.written, part.local) for part in deletions)
    data = max(times, default=strongest[0])
    return Newest(*strongest) if data <= strongest[0] else Newest(data, _NO_DELETION)
