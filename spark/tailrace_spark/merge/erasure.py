"""What a truncation takes of stored partitions, before the changes that it left are merged with the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from tailrace_schemas.change import Deletion
from tailrace_spark.merge.partition import (
    NOT_STORED,
    ClusteredState,
    MergeResult,
    RowRenderer,
    StoredPartition,
    StoredRow,
)
from tailrace_spark.merge.stored_row import STATIC, StoredState, decode_stored, deletion_rows
from tailrace_spark.rowstate.codec import encode_state
from tailrace_spark.rowstate.deletions import truncate_deletions
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.truncation import EVERYTHING

VisibleRow = TypeVar("VisibleRow")


def erase_partitions(
    renderer: RowRenderer[VisibleRow], stored: Mapping[bytes, StoredPartition], erased: Deletion, now: int
) -> tuple[Mapping[bytes, StoredPartition], MergeResult[VisibleRow]]:
    """What is left of all stored partitions of a table, and what becomes of their rows.

    A batch is merged with what is left (`MergeResult.then`): a change may be older than what the truncation took.
    `now` in seconds since the epoch. Raises DecodeError as merging does.
    """
    # Not as a deletion above the rows: that would hold back older writes, which come behind a truncation when a table
    # is loaded again with its original timestamps.
    result = MergeResult[VisibleRow]()
    if erased == EVERYTHING:
        for key, partition in stored.items():
            _remove(key, partition, result)
        return {}, result
    uncovered: dict[bytes, StoredPartition] = {}
    for key, partition in stored.items():
        remaining = _erase(key, partition, erased, now, result)
        _show(renderer, key, partition, remaining, now, result)
        if remaining != NOT_STORED:
            uncovered[key] = remaining
    return uncovered, result


def _remove(key: bytes, partition: StoredPartition, result: MergeResult[VisibleRow]) -> None:
    # TRUNCATE drops sstables, and tombstones with them: ranges and deleted partitions are forgotten too.
    clusterings = [*deletion_rows(partition.deletions), *partition.rows]
    if partition.static is not None:
        clusterings.append(STATIC)
    result.removed += [(key, clustering) for clustering in clusterings]
    result.hidden.update({(key, clustering) for clustering in (*partition.rows, STATIC)})
    result.rows += len(partition.rows) + (partition.static is not None)


def _erase(
    key: bytes, partition: StoredPartition, erased: Deletion, now: int, result: MergeResult[VisibleRow]
) -> StoredPartition:
    """What is left of a partition, whose changed states are put into the result."""
    # By write times, where the truncation's record came too late: some of what is stored was written behind it.
    deletions = truncate_deletions(partition.deletions, erased)
    if deletions != partition.deletions:
        result.put_deletions(key, partition.deletions, deletions, now)
    rows: dict[bytes, StoredRow] = {}
    for clustering, row in partition.rows.items():
        state = decode_stored(*row.stored).state
        state.shadow(erased)
        encoded = encode_state(state)
        if encoded != row.stored[0]:
            result.put((key, clustering), state, now, row.written_as, encoded)
            result.rows += 1
        if not state.empty:
            rows[clustering] = replace(row, stored=_stored(state, encoded))
    static = partition.static
    if static is not None:
        state = static.state
        state.shadow(erased)
        encoded = encode_state(state)
        if encoded != static.encoded:
            result.put((key, STATIC), state, now, None, encoded)
            result.rows += 1
        static = None if state.empty else StoredState(state, encoded, state.assignment)
    return StoredPartition(deletions, static, None if static is None else partition.static_expiry, rows)


def _show(
    renderer: RowRenderer[VisibleRow],
    key: bytes,
    former: StoredPartition,
    remaining: StoredPartition,
    now: int,
    result: MergeResult[VisibleRow],
) -> None:
    """Render what is left again; rows that read as before are shown again."""
    states: dict[bytes, ClusteredState] = {
        clustering: (decode_stored(*row.stored).state, row.written_as) for clustering, row in remaining.rows.items()
    }
    if renderer.whole_partitions:
        static = None if remaining.static is None else remaining.static.state
        visible = dict(renderer.partition(key, static, states.items(), now))
    else:
        rows = {(key, clustering): renderer.row((key, clustering), states[clustering], now) for clustering in states}
        visible = {row_key: row for row_key, row in rows.items() if row is not None}
    result.visible.update(visible)
    result.hidden.update({(key, clustering) for clustering in (*former.rows, STATIC)} - visible.keys())


def _stored(state: RowState, encoded: bytes) -> tuple[bytes, int | None, bytes | None]:
    assignment = state.assignment
    return (encoded, None, None) if assignment is None else (encoded, assignment[0], assignment[1])
