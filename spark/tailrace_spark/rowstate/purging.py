"""Purging: which deletions need not be known any more, once nothing older than them can come."""

from __future__ import annotations

from typing import Final

from tailrace_spark.rowstate.cells import CellState
from tailrace_spark.rowstate.row import ColumnState, RowState

_MICROS: Final = 1_000_000
_FOR_EVER: Final = 2**61


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
