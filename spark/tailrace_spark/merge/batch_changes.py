"""Changes of one table, merged with each other in memory before the database is asked anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace_schemas.change import Change, Op
from tailrace_schemas.cql.order import clustering_key, range_limits
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.streams import Assignment
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.merge.state_keys import ROW
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    flatten,
    merge_partitions,
)
from tailrace_spark.rowstate.row import RowState, state_of
from tailrace_spark.rowstate.truncation import TruncationState, merge_truncations, truncated, truncation_of

Clustering = tuple[bytes | None, ...]


@dataclass(slots=True, init=False)
class RowChanges:
    """What changes say of one row: one change, as it came, or the state of several."""

    clustering: Clustering
    one: Delivered | None
    merged: RowState | None

    def __init__(self, clustering: Clustering, one: Delivered | None, merged: RowState | None = None) -> None:
        self.clustering = clustering
        self.one = one
        self.merged = merged

    def add(self, other: Delivered) -> None:
        """Take in another change of the row. A copy of the one change, as each replica publishes it, says no more."""
        if self.merged is None and self.one is not None:
            digest = self.one.change.digest
            if digest and digest == other.change.digest and self.one.assignment == other.assignment:
                return
        self.merged = self.state
        self.merged.absorb(state_of(other.change, other.assignment))

    @property
    def state(self) -> RowState:
        """The state that all of it says; made anew where one change says it."""
        if self.merged is not None:
            return self.merged
        return RowState() if self.one is None else state_of(self.one.change, self.one.assignment)

    def merge_into(self, state: RowState) -> None:
        """Merge all of it into what is known of the row."""
        state.absorb(self.state)

    @property
    def alone(self) -> Delivered | None:
        """The one change, where it is all that is said."""
        return self.one if self.merged is None else None


@dataclass(slots=True)
class BatchChanges:
    """Changes of one table, merged with each other."""

    deletions: dict[bytes, PartitionState] = field(default_factory=dict)
    statics: dict[bytes, RowState] = field(default_factory=dict)
    rows: dict[RowKey, RowChanges] = field(default_factory=dict)
    truncations: TruncationState = field(default_factory=TruncationState)


class BatchChangesBuilder:
    """Changes of one table that are merged with each other, in memory, some at a time."""

    def __init__(self) -> None:
        self._found = BatchChanges()
        self._ranges: dict[bytes, list[RangeDeletion]] = {}

    def add(self, delivered: Iterable[Delivered]) -> None:
        """Take in some more. Raises DecodeError as `gather` does."""
        found = self._found
        for one in delivered:
            change, key = one.change, one.change.key
            op = change.op
            if op is Op.TRUNCATE:
                if change.deletion is None or change.source is None:
                    raise CorruptError(f"{change.table}: a truncation without a time or a source")
                found.truncations = merge_truncations(found.truncations, truncated(truncation_of(change)))
                continue
            if key is None:
                raise CorruptError(f"{change.table}: a {op.value} without a partition key")
            if op is Op.DELETE_PARTITION:
                partition = PartitionState(change.deletion, assignment=one.assignment)
                found.deletions[key] = merge_partitions(found.deletions.get(key, NOTHING_DELETED), partition)
            elif op is Op.DELETE_RANGE:
                self._ranges.setdefault(key, []).append(_range(change, one.assignment))
            elif change.static:
                static = found.statics.setdefault(key, said := state_of(change, one.assignment))
                if static is not said:
                    static.absorb(said)
            else:
                clustering = change.clustering or ()
                row_key = (key, ROW + clustering_key(change.table, clustering))
                known = found.rows.get(row_key)
                if known is None:
                    found.rows[row_key] = RowChanges(clustering, one)
                else:
                    known.add(one)

    def build(self) -> BatchChanges:
        """All of it; nothing may be added behind."""
        found = self._found
        for key, parts in self._ranges.items():
            partition = PartitionState(None, flatten(parts))
            found.deletions[key] = merge_partitions(found.deletions.get(key, NOTHING_DELETED), partition)
        return found


def gather(delivered: Iterable[Delivered]) -> BatchChanges:
    """Merge changes of one table with each other, in memory.

    Raises DecodeError for a change that cannot be merged: clusterings, elements and counters that are no values of
    their types.
    """
    gathering = BatchChangesBuilder()
    gathering.add(delivered)
    return gathering.build()


def _range(change: Change, assignment: Assignment | None) -> RangeDeletion:
    if change.start is None or change.end is None or change.deletion is None:
        raise CorruptError(f"{change.table}: a range deletion without bounds or deletion")
    start, end = range_limits(change.table, change.start, change.end)
    return RangeDeletion(start, end, change.deletion, assignment)
