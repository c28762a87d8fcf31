"""What a state table says of a partition beside its rows: its deletion, those of ranges, its static row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tailrace_spark.merge.state_keys import PARTITION, RANGE, STATIC
from tailrace_spark.merge.stored_row import RowKey, StateTableRow, StoredState, assignment_of, decode_stored, row_of
from tailrace_spark.rowstate.codec import decode_deletion, encode_deletion
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, RangeDeletion
from tailrace_spark.rowstate.purging import seconds

HeadRow = tuple[bytes, bytes, int | None, bytes | None]
"""(clustering value, state, generation, stream id)."""


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
