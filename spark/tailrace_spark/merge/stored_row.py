"""Rows of a state table: a row's state, a partition's deletions and static row, and what a purge horizon lets go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tailrace_schemas.streams import Assignment
from tailrace_spark.rowstate.codec import decode_deletion, decode_state, encode_deletion, encode_state, newest
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, RangeDeletion
from tailrace_spark.rowstate.partition import deletes_from, purge, seconds
from tailrace_spark.rowstate.row import RowState

# The order is that of Cassandra's UnfilteredRowIterator: the partition's deletion, its static row, then clustered ones.
# So one scan of a partition's keys has met every deletion before the first row that it may cover.
PARTITION: Final = b"\x00"
STATIC: Final = b"\x01"
RANGE: Final = b"\x02"
ROW: Final = b"\x03"
# No key starts with it: it is the upper bound of a scan over all rows of a partition.
END: Final = b"\x04"
RowKey = tuple[bytes, bytes]
"""(partition key, clustering value of the state table)."""
EncodedState = tuple[bytes, int | None, bytes | None]
"""(state, generation, stream id), as they are there."""
StateTableRow = tuple[bytes, bytes, int, bytes, int | None, bytes | None, int | None, int | None]
"""One row of the state table: its columns, in order."""
HeadRow = tuple[bytes, bytes, int | None, bytes | None]
"""(clustering value, state, generation, stream id)."""


@dataclass(slots=True, init=False)
class StoredState:
    """One row of the state table: its bytes and assignment, as they are there, tell whether merging changed anything.

    Merging takes `state` for itself. The `__init__` is its own so that it is compiled.
    """

    state: RowState
    encoded: bytes
    assignment: Assignment | None

    def __init__(self, state: RowState, encoded: bytes, assignment: Assignment | None) -> None:
        self.state = state
        self.encoded = encoded
        self.assignment = assignment

    def differs(self, state: RowState) -> bool:
        """Whether another state than this one is in the table."""
        return state.assignment != self.assignment or encode_state(state) != self.encoded


def decode_stored(encoded: bytes, generation: int | None, stream_id: bytes | None) -> StoredState:
    """What these columns stand for. Raises DecodeError for bytes that no version wrote."""
    state, assignment = decode_state(encoded), assignment_of(generation, stream_id)
    state.assign(assignment)
    return StoredState(state, encoded, assignment)


def assignment_of(generation: int | None, stream_id: bytes | None) -> Assignment | None:
    """What these columns say; None where it is not known."""
    return None if generation is None or stream_id is None else Assignment(generation, stream_id)


def row_of(
    row_key: RowKey,
    newest: int,
    state: bytes,
    assignment: Assignment | None,
    expiry: int | None = None,
    deletes: int | None = None,
) -> StateTableRow:
    """The columns of one row; see `sinks.state_store.tables` for what they say."""
    # Spelled out: mypyc makes this tuple without a loop, once for each row of a batch.
    if assignment is None:
        return row_key[0], row_key[1], newest, state, None, None, expiry, deletes
    return row_key[0], row_key[1], newest, state, assignment[0], assignment[1], expiry, deletes


def state_row(
    row_key: RowKey, state: RowState, now: int | None, encoded: bytes | None = None, arrived: int | None = None
) -> StateTableRow:
    """The row of a state that is not empty, and that was looked at at a time, in seconds since the epoch.

    `arrived` is when the last of it came, where that was not then.
    """
    evaluated = -1 if now is None else now
    expiry, deletes = state.next_expiry(after=evaluated), deletes_from(state)
    # A tombstone is purged once its write time and its arrival are both before the horizon (reference/merging.md,
    # "Purging"), so the later of the two counts.
    if deletes is not None:
        deletes = max(deletes, evaluated if arrived is None else arrived)
    return row_of(row_key, newest(state), encoded or encode_state(state), state.assignment, expiry, deletes)


@dataclass(frozen=True, slots=True)
class PartitionHead:
    """What is said of a partition beside its rows."""

    deletions: PartitionState = NOTHING_DELETED
    static: StoredState | None = None


def head_of(rows: Iterable[HeadRow]) -> PartitionHead:
    """What these rows say, all of one partition's below sql_names.ROW, by their clustering value."""
    deletions = NOTHING_DELETED
    static: StoredState | None = None
    ranges: list[RangeDeletion] = []
    for clustering, encoded, generation, stream_id in rows:
        if clustering == STATIC:
            static = decode_stored(encoded, generation, stream_id)
            continue
        deletion, end = decode_deletion(encoded)
        assignment = assignment_of(generation, stream_id)
        # A partition has one deletion of its own: the strongest, since DeletionTime.supersedes orders all of them.
        if clustering == PARTITION:
            deletions = PartitionState(deletion, assignment=assignment)
        else:
            ranges.append(RangeDeletion(clustering[len(RANGE) :], end, deletion, assignment))
    return PartitionHead(replace(deletions, ranges=tuple(ranges)), static)


def deletion_row(row_key: RowKey, part: RangeDeletion, now: int | None) -> StateTableRow:
    """The row of one deletion; `now` in seconds, as it came."""
    # A tombstone that came late is kept as long as one that came in time: purging counts from its arrival, as
    # gc_grace_seconds counts from localDeletionTime.
    written = part.deletion.written
    arrived = max(seconds(written), -1 if now is None else now)
    return row_of(row_key, written, encode_deletion(part.deletion, part.end), part.assignment, deletes=arrived)


def deletion_rows(partition: PartitionState) -> dict[bytes, RangeDeletion]:
    """What stands under which clustering value; a partition's deletion as a range without an end."""
    rows = {RANGE + deletion.start: deletion for deletion in partition.ranges}
    if partition.deletion is not None:
        rows[PARTITION] = RangeDeletion(b"", None, partition.deletion, partition.assignment)
    return rows


def changed_deletions(
    key: bytes, stored: PartitionState, merged: PartitionState, now: int | None
) -> tuple[list[StateTableRow], list[RowKey]]:
    """The rows of a partition's deletions that were not stored, and the keys of those that go; `now` in seconds."""
    old, new = deletion_rows(stored), deletion_rows(merged)
    rows = [
        deletion_row((key, clustering), deletion, now)
        for clustering, deletion in new.items()
        if old.get(clustering) != deletion
    ]
    # Flattening may cut or swallow former ranges, as RangeTombstoneList does: their rows are removed.
    return rows, [(key, clustering) for clustering in old if clustering not in new]


def purge_stored(clustering: bytes, stored: EncodedState, horizon: int) -> tuple[RowState, int | None]:
    """What purging up to `horizon` leaves of a stored state, and the largest write time that went; None: none did.

    Times in microseconds. `clustering` is the state key. The deletion of a partition or range goes whole, which leaves
    an empty state. The caller has seen that the state came before the horizon too.
    """
    if clustering == STATIC or clustering >= ROW:
        state = decode_stored(*stored).state
        return state, purge(state, horizon)
    # A deletion is purged whole or not at all: it still covers all of its range, or nothing that may come needs it.
    written = decode_deletion(stored[0])[0].written
    return RowState(), written if written <= horizon else None
