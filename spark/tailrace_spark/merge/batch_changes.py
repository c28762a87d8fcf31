"""Changes of one table, merged with each other before the database is asked anything; what truncations take of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key, range_limits
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.stored_row import ROW, RowKey
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    flatten,
    merge_partitions,
)
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.rowstate.truncation import TruncationState, absorb, truncation_of


@dataclass(slots=True, init=False)
class RowChanges:
    """The changes of one row in a batch: one change, as it was delivered, or the merged state of several."""

    clustering: Clustering
    delivered: Delivered | None
    merged: RowState | None

    def __init__(self, clustering: Clustering, delivered: Delivered | None, merged: RowState | None = None) -> None:
        self.clustering = clustering
        self.delivered = delivered
        self.merged = merged

    def add(self, delivered: Delivered) -> None:
        """Add another change of the row. A copy of its one change, as each replica publishes it, changes nothing."""
        first = self.single
        if first is not None:
            # With replication factor 3 two of three changes are copies. Equal digests tell so without merging states;
            # an empty digest tells nothing.
            digest = first.change.digest
            if digest and digest == delivered.change.digest and first.assignment == delivered.assignment:
                return
        # Rows.merge is commutative, associative and idempotent: the order of delivery does not matter from here on.
        self.merged = self.state
        self.merged.absorb(state_of(delivered.change, delivered.assignment))

    @property
    def state(self) -> RowState:
        """The state of all changes together; each time a new one where it is one change."""
        if self.merged is not None:
            return self.merged
        return RowState() if self.delivered is None else state_of(self.delivered.change, self.delivered.assignment)

    @property
    def single(self) -> Delivered | None:
        """The one change; None where several are merged."""
        return self.delivered if self.merged is None else None


@dataclass(slots=True)
class BatchChanges:
    """Changes of one table, merged with each other."""

    deletions: dict[bytes, PartitionState] = field(default_factory=dict)
    statics: dict[bytes, RowState] = field(default_factory=dict)
    rows: dict[RowKey, RowChanges] = field(default_factory=dict)


class BatchChangesBuilder:
    """Merges changes of one table with each other, in memory, some at a time."""

    def __init__(self) -> None:
        self._batch = BatchChanges()
        self._ranges: dict[bytes, list[RangeDeletion]] = {}

    def add(self, changes: Iterable[Delivered]) -> None:
        """Add some changes. Raises DecodeError as `gather` does."""
        batch = self._batch
        for delivered in changes:
            change, key = delivered.change, delivered.change.key
            op = change.op
            # A truncation is of the whole table, at a position of each host's log: `truncate_batch` has taken it out.
            if op is Op.TRUNCATE:
                raise CorruptError(f"{change.table}: a truncation without a time or a source")
            if key is None:
                raise CorruptError(f"{change.table}: a {op.value} without a partition key")
            if op is Op.DELETE_PARTITION:
                partition = PartitionState(change.deletion, assignment=delivered.assignment)
                batch.deletions[key] = merge_partitions(batch.deletions.get(key, NOTHING_DELETED), partition)
            elif op is Op.DELETE_RANGE:
                # Flattened once, at the end: RangeTombstoneList.insert costs a search for each range.
                self._ranges.setdefault(key, []).append(_range(change, delivered.assignment))
            elif change.static:
                # Cassandra's Row.Deletion is never set on a static row, but a partition's deletion covers it.
                static = batch.statics.setdefault(key, state := state_of(change, delivered.assignment))
                if static is not state:
                    static.absorb(state)
            else:
                # The key sorts as ClusteringComparator does, descending columns and empty values included.
                clustering = change.clustering or ()
                row_key = (key, ROW + clustering_key(change.table, clustering))
                row = batch.rows.get(row_key)
                if row is None:
                    batch.rows[row_key] = RowChanges(clustering, delivered)
                else:
                    row.add(delivered)

    def build(self) -> BatchChanges:
        """All of them together; nothing may be added afterwards."""
        batch = self._batch
        for key, ranges in self._ranges.items():
            partition = PartitionState(None, flatten(ranges))
            batch.deletions[key] = merge_partitions(batch.deletions.get(key, NOTHING_DELETED), partition)
        return batch


def gather(changes: Iterable[Delivered]) -> BatchChanges:
    """Merge changes of one table with each other, in memory; truncations are taken out before (`truncate_batch`).

    Raises DecodeError for a change that cannot be merged: clusterings, elements and counters that are no values of
    their types.
    """
    builder = BatchChangesBuilder()
    builder.add(changes)
    return builder.build()


def _range(change: Change, assignment: Assignment | None) -> RangeDeletion:
    if change.start is None or change.end is None or change.deletion is None:
        raise CorruptError(f"{change.table}: a range deletion without bounds or deletion")
    start, end = range_limits(change.table, change.start, change.end)
    return RangeDeletion(start, end, change.deletion, assignment)


def group_by_table(
    changes: Iterable[Delivered], tables: dict[UUID, list[Delivered]] | None = None
) -> dict[UUID, list[Delivered]]:
    """The changes of each table id, in their order; several definitions of one table are together.

    With `tables`, a former result, they are added to it.
    """
    groups = {} if tables is None else tables
    table, group = None, list[Delivered]()
    for delivered in changes:
        if delivered.change.table is not table:  # hashing an id takes longer than this comparison
            table = delivered.change.table
            group = groups.setdefault(table.id, [])
        group.append(delivered)
    return groups


@dataclass(frozen=True, slots=True)
class TruncatedBatch:
    """Changes of one table that no truncation took, and the truncations to store.

    `erased` is the deletion of what is stored of the table so far; None: it stays. `left`: changes to merge, in order.
    """

    truncations: TruncationState
    erased: Deletion | None
    left: Sequence[Delivered]


def truncate_batch(stored: TruncationState, changes: Sequence[Delivered], ring_delay: float) -> TruncatedBatch:
    """Take a batch's truncations out of its changes, and what they, or those that are `stored`, took.

    `changes` are of one table id, those of each Kafka partition in order; `ring_delay` in seconds. The caller stores
    the truncations and erases in one step, before it merges: nothing that is merged later may be erased by them again.
    """
    # All of the batch's truncations first: a change of one host may stand before the record of another host's.
    new = [
        truncation_of(delivered.change)
        for delivered in changes
        if delivered.change.op is Op.TRUNCATE and _is_told(delivered)
    ]
    if not new and not stored.statements:
        return TruncatedBatch(stored, None, changes)
    truncations, erased = absorb(stored, new, ring_delay)
    # By position (CommitLogPosition), as a node replays its log (CommitLogReplayer.ReplayFilter): a write that one
    # replica has from before its truncation and another one from behind it is covered once and left once.
    remaining = [
        delivered
        for delivered in changes
        if not (delivered.change.op is Op.TRUNCATE and _is_told(delivered))
        and not truncations.covers(delivered.change, ring_delay)
    ]
    return TruncatedBatch(truncations, erased, remaining)


def _is_told(truncation: Delivered) -> bool:
    """Whether a truncation says whose it is, and of when; merging refuses others."""
    return truncation.change.source is not None and truncation.change.deletion is not None
