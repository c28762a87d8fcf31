"""One partition: changes of any kind merged into it, and which of its deletions need not be known any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    flatten,
    merge_partitions,
    truncate_deletions,
)
from tailrace_spark.rowstate.row import ColumnState, RowState, merge, state_of

Clustering = tuple[bytes | None, ...]
ClusteringBytes = bytes | None
"""A row in its partition: its order-preserving clustering bytes (clustering.clustering_key); None: the static row."""
_MICROS: Final = 1_000_000
_FOR_EVER: Final = 2**61


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One row or static row; `clustering` is () for the static row, and for rows of tables without such columns."""

    clustering: Clustering
    state: RowState


ChangedRow = tuple[ClusteringBytes, PartitionRow | None]
"""A row whose state changed, as it was before; None: nothing was known of it."""
_UNKNOWN: Final = RowState()


@dataclass(slots=True)
class Partition:
    """The state of one partition, or of the part of it that changes can touch.

    States hold nothing that `deletions` cover. Owned by one thread; row states in it are replaced, never changed in
    place, so what was taken out of it stays as it was.
    """

    deletions: PartitionState = NOTHING_DELETED
    rows: dict[ClusteringBytes, PartitionRow] = field(default_factory=dict)

    def covering(self, row_key: ClusteringBytes) -> Deletion | None:
        """The strongest deletion over a row that is not its own."""
        return self.deletions.covering(row_key)

    def absorb(self, change: Change, assignment: Assignment | None = None) -> list[ChangedRow]:
        """Merge a change of this partition; the rows whose states it changed, in no order.

        Commutative, associative and idempotent: a redelivered change touches nothing. Raises ValueError for a
        truncation, DecodeError as `state_of` and `clustering_key` do.
        """
        if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            deletions = deletions_of(change, assignment)
            self.deletions = merge_partitions(self.deletions, deletions)
            return self._shadow(deletions.covering)
        clustering = change.clustering or ()
        row_key = None if change.static else clustering_key(change.table, clustering)
        existing, state = self.rows.get(row_key), state_of(change, assignment)
        # What a deletion covers (DeletionTime.deletes) is not kept. So the state is the same whether the deletion came
        # before the write or after it.
        covering = self.deletions.covering(row_key)
        if covering is not None:
            state.shadow(covering)
        if existing is not None:
            state = merge(existing.state, state)
        if state == (_UNKNOWN if existing is None else existing.state):
            return []
        self.rows[row_key] = PartitionRow(clustering, state)
        return [(row_key, existing)]

    def erase(self, truncated: Deletion) -> list[ChangedRow]:
        """Take away what a truncation of the table covers, deletions too; the rows that it changed.

        The truncation has to stay known to the caller, who leaves out changes that it took (`TruncationState.covers`).
        """
        # A truncation takes tombstones too (docs/reference/merging.md): what it took covers no later write.
        self.deletions = truncate_deletions(self.deletions, truncated)
        return self._shadow(lambda _: truncated)

    def _shadow(self, covering: Callable[[ClusteringBytes], Deletion | None]) -> list[ChangedRow]:
        touched: list[ChangedRow] = []
        for row_key, row in self.rows.items():
            deletion = covering(row_key)
            if deletion is not None:
                state = merge(row.state, _UNKNOWN)  # a copy: states that were handed out stay as they were
                state.shadow(deletion)
                if state != row.state:
                    touched.append((row_key, row))
                    self.rows[row_key] = PartitionRow(row.clustering, state)
        for row_key, _ in touched:
            if self.rows[row_key].state.empty:
                del self.rows[row_key]
        return touched


def deletions_of(change: Change, assignment: Assignment | None = None) -> PartitionState:
    """The deletion of a partition or of a range, as a state by itself. Raises ValueError for another change."""
    if change.deletion is None:
        raise ValueError(f"{change.table}: {change.op.value} without a deletion")
    if change.op is Op.DELETE_PARTITION:
        return PartitionState(change.deletion, assignment=assignment)
    if change.op is not Op.DELETE_RANGE or change.start is None or change.end is None:
        raise ValueError(f"{change.table}: {change.op.value} deletes no range")
    start, end = range_limits(change.table, change.start, change.end)
    return PartitionState(None, flatten([RangeDeletion(start, end, change.deletion, assignment)]))


def purge(state: RowState, horizon: int) -> int | None:
    """Remove tombstones, deletions and what has expired, where it was written up to `horizon`, in microseconds.

    Live data stays, and visible values are the same before and after. Returns the largest write time that was removed;
    None where nothing was. Changes at or below it must not be merged any more, since no tombstone covers them now
    (contracts.md section 6: `merge_horizon`, `purged_to`). The caller sees to it that they arrived before the horizon.
    """
    # An expired cell or marker is a tombstone to Cassandra, of its own write time (BufferCell.purge). So it goes like
    # one; Cassandra's condition, gc_grace_seconds, is the caller's horizon here. A writer may have chosen a time far
    # ahead (USING TIMESTAMP): purged before that, it would make late all that comes until then.
    purged: list[int] = []
    if state.deletion is not None and state.deletion.written <= horizon:
        purged.append(state.deletion.written)
        state.deletion = None
    marker = state.marker
    if marker is not None and marker.expires is not None and _is_over(marker.written, marker.expires, horizon):
        purged.append(marker.written)
        state.marker = None
    for name in list(state.columns):
        column = state.columns[name]
        _purge_column(column, horizon, purged)
        if column.deletion is None and not column.cells:
            del state.columns[name]
    if not purged:
        return None
    state.settle()
    return max(purged)


def deletes_from(state: RowState) -> int | None:
    """The first horizon at which `purge` removes something, in whole seconds since the epoch; None: there is none."""
    soonest = _FOR_EVER
    if state.deletion is not None:
        soonest = min(soonest, seconds(state.deletion.written))
    if state.marker is not None and state.marker.expires is not None:
        soonest = min(soonest, max(state.marker.expires, seconds(state.marker.written)))
    for column in state.columns.values():
        if column.deletion is not None:
            soonest = min(soonest, seconds(column.deletion.written))
        if column.counter:
            # As in _purge_column: the tombstone goes with the newest shard, never before.
            if None in column.cells:
                soonest = min(soonest, seconds(max([cell.written for cell in column.cells.values()])))
            continue
        for cell in column.cells.values():
            if cell.value is None:
                soonest = min(soonest, seconds(cell.written))
            elif cell.ttl is not None and cell.expires is not None:
                soonest = min(soonest, max(cell.expires, seconds(cell.written)))
    return None if soonest == _FOR_EVER else soonest


def seconds(written: int) -> int:
    """A write time in microseconds, rounded up to a whole second."""
    return -(-written // _MICROS)


def _purge_column(column: ColumnState, horizon: int, purged: list[int]) -> None:
    if column.deletion is not None and column.deletion.written <= horizon:
        purged.append(column.deletion.written)
        column.deletion = None
    if column.counter:
        # A counter's tombstone wins over newer shards too (Cells.resolveCounter, CASSANDRA-7346). Without it they would
        # show again: they go with it, or all stay.
        if None in column.cells and all(cell.written <= horizon for cell in column.cells.values()):
            purged.extend(cell.written for cell in column.cells.values())
            column.cells = {}
        return
    purged_keys = [key for key, cell in column.cells.items() if _deletes(cell, horizon)]
    purged.extend(column.cells.pop(key).written for key in purged_keys)


def _deletes(cell: CellState, horizon: int) -> bool:
    if cell.value is None:
        return cell.written <= horizon
    return cell.ttl is not None and cell.expires is not None and _is_over(cell.written, cell.expires, horizon)


def _is_over(written: int, expires: int, horizon: int) -> bool:
    return written <= horizon and expires * _MICROS <= horizon
