"""Merges the changes of a table with its stored partitions: which rows to store, and which rows SELECT then returns.

For stores that keep the state of a row as `stored_row` has it, and render visible rows as they like.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from tailrace_schemas.change import Op
from tailrace_schemas.errors import DecodeError
from tailrace_spark.batch.delivery import DeadLetter, Delivered
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges, gather
from tailrace_spark.merge.row import covering, differs, is_redelivery, merge_row, merge_state
from tailrace_spark.merge.stored_row import (
    STATIC,
    EncodedState,
    PartitionHead,
    RowKey,
    StateTableRow,
    StoredState,
    changed_deletions,
    decode_stored,
    state_row,
)
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, PartitionState, merge_partitions
from tailrace_spark.rowstate.row import RowState, state_of

VisibleRow = TypeVar("VisibleRow")
"""What a store has of a row that SELECT returns."""
VisibleRowOut = TypeVar("VisibleRowOut", covariant=True)
Clustering = Sequence[bytes | None]
ClusteredState = tuple[RowState, Clustering]
"""A row's state, and its clustering columns as they were written."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """A row as the store has it: `stored` bytes, clustering columns as they were written, and the next expiry."""

    stored: EncodedState
    written_as: tuple[bytes | None, ...]
    next_expiry: int | None


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition as the store has it: its deletions, its static row, and its rows by their state keys."""

    deletions: PartitionState
    static: StoredState | None
    static_expiry: int | None
    rows: Mapping[bytes, StoredRow]


NOT_STORED = StoredPartition(PartitionHead().deletions, None, None, {})
RowToStore = tuple[StateTableRow, Clustering | None]
"""A row to be stored, and its clustering columns."""


class RowRenderer(Protocol[VisibleRowOut]):
    """Renders visible rows of a source table, by one definition of it."""

    @property
    def whole_partitions(self) -> bool:
        """Whether visible rows have values of others of their partition, so that all of these are rendered together."""

    def row(self, row_key: RowKey, state: ClusteredState, now: int | None) -> VisibleRowOut | None:
        """A visible row of a table without static columns; None: SELECT returns none. Raises DecodeError."""

    def partition(
        self, key: bytes, static: RowState | None, rows: Iterable[tuple[bytes, ClusteredState]], now: int | None
    ) -> Mapping[RowKey, VisibleRowOut]:
        """All visible rows of a partition, by their keys; of one without rows its static columns, under STATIC.

        Raises DecodeError.
        """


class MergeResult(Generic[VisibleRow]):
    """What becomes of a table's rows.

    `stored` are to be stored, and the rows of `removed` keys removed from what is stored. `visible` rows are to be
    put into what users read, and those of `hidden` keys taken out of it. `rows`: how many rows' states changed.
    """

    def __init__(self) -> None:
        self.stored: list[RowToStore] = []
        self.removed: list[RowKey] = []
        self.visible: dict[RowKey, VisibleRow] = {}
        self.hidden: set[RowKey] = set()
        self.rows = 0

    def then(self, later: MergeResult[VisibleRow]) -> MergeResult[VisibleRow]:
        """Both results as one: what a later merge of the same rows says of a row counts."""
        # An erased row may be written again by the same batch, under the same key: then it is stored, and not removed.
        later_keys = {(row[0], row[1]) for row, _ in later.stored}
        result = MergeResult[VisibleRow]()
        replaced = later_keys.union(later.removed)
        result.stored = [stored for stored in self.stored if (stored[0][0], stored[0][1]) not in replaced]
        result.stored += later.stored
        result.removed = [row_key for row_key in self.removed if row_key not in later_keys] + later.removed
        result.visible = {key: row for key, row in self.visible.items() if key not in later.hidden} | later.visible
        result.hidden = (self.hidden - later.visible.keys()) | later.hidden
        result.rows = self.rows + later.rows
        return result

    def put(
        self, row_key: RowKey, state: RowState, now: int, written_as: Clustering | None, encoded: bytes | None
    ) -> None:
        """Store a row's state, or remove the row where it is empty; `encoded` are its bytes, if they are known."""
        if state.empty:
            self.removed.append(row_key)
        else:
            self.stored.append((state_row(row_key, state, now, encoded), written_as))

    def put_deletions(self, key: bytes, stored: PartitionState, merged: PartitionState, now: int) -> None:
        """Store a partition's deletions."""
        rows, removed = changed_deletions(key, stored, merged, now)
        self.stored += [(row, None) for row in rows]
        self.removed += removed


class MergedHead:
    """What a batch makes of a partition beside its rows: the deletions above them, and its static row.

    `deleted` and `static_changed` tell whether they are others than the stored ones.
    """

    def __init__(
        self, deletions: PartitionState, *, deleted: bool, static: RowState | None, static_changed: bool
    ) -> None:
        self.deletions = deletions
        self.deleted = deleted
        self.static = static
        self.static_changed = static_changed


NO_HEAD: Final = MergedHead(NOTHING_DELETED, deleted=False, static=None, static_changed=False)
"""Of a partition of which nothing is said beside its rows."""


class PartitionMerge(Generic[VisibleRow]):
    """Merges by one definition; `now` in seconds since the epoch.

    `merge` does all of it. A store that writes what stands above the rows before it reads these has `merge_heads` and
    then `merge_rows` do it.
    """

    def __init__(self, renderer: RowRenderer[VisibleRow], now: int, *, all_rows: bool = False) -> None:
        """With `all_rows` it merges all stored rows."""
        self._renderer = renderer
        self._now = now
        self._all_rows = all_rows

    def merge(self, stored: Mapping[bytes, StoredPartition], batch: BatchChanges) -> MergeResult[VisibleRow]:
        """Merge a batch into all stored partitions that it changes. Raises DecodeError as rendering does.

        Of further partitions it merges what has expired.
        """
        result = MergeResult[VisibleRow]()
        rows: dict[bytes, dict[bytes, RowChanges]] = {key: {} for key in {*stored, *batch.deletions, *batch.statics}}
        for (key, clustering), changes in batch.rows.items():
            rows.setdefault(key, {})[clustering] = changes
        # In the order of their keys: a batch that is merged again writes the same rows in the same order.
        for key in sorted(rows):
            partition = stored.get(key, NOT_STORED)
            head = self._head(key, partition, batch, result)
            self._rows(key, partition.rows, head, rows[key], result, whole_partition=False)
        return result

    def merge_heads(
        self, stored: Mapping[bytes, StoredPartition], batch: BatchChanges
    ) -> tuple[dict[bytes, MergedHead], MergeResult[VisibleRow]]:
        """Merge what stands above rows, of all partitions that are stored or of which the batch says such.

        It takes the states of `stored` and of the batch for itself, and looks at no rows.
        """
        # A store without transactions must tell of a deletion before it looks for the rows below it: whoever writes one
        # meanwhile has then seen the deletion, or is seen. Cassandra needs no such order, as it asks at each read.
        result = MergeResult[VisibleRow]()
        keys = sorted({*stored, *batch.deletions, *batch.statics})
        return {key: self._head(key, stored.get(key, NOT_STORED), batch, result) for key in keys}, result

    def merge_rows(
        self,
        heads: Mapping[bytes, MergedHead],
        stored: Mapping[bytes, Mapping[bytes, StoredRow]],
        batch: Mapping[RowKey, RowChanges],
        whole_partitions: Collection[bytes],
    ) -> MergeResult[VisibleRow]:
        """Merge the rows below merged heads; of partitions `whole_partitions` all that are stored. Raises DecodeError.

        `stored` has each partition's rows by their state keys.
        """
        result = MergeResult[VisibleRow]()
        rows: dict[bytes, dict[bytes, RowChanges]] = {key: {} for key in {*stored, *heads}}
        for (key, clustering), changes in batch.items():
            rows.setdefault(key, {})[clustering] = changes
        for key in sorted(rows):
            # A row without a head above it is covered by nothing: most partitions never have a deletion or static row.
            self._rows(
                key,
                stored.get(key, {}),
                heads.get(key, NO_HEAD),
                rows[key],
                result,
                whole_partition=key in whole_partitions,
            )
        return result

    def _head(
        self, key: bytes, stored: StoredPartition, batch: BatchChanges, result: MergeResult[VisibleRow]
    ) -> MergedHead:
        # A deletion that an equal or stronger one covers changes nothing (DeletionTime.supersedes, RangeTombstoneList):
        # then no row below needs to be looked at.
        deletions = merge_partitions(stored.deletions, batch.deletions.get(key, NOTHING_DELETED))
        deleted = deletions != stored.deletions
        if deleted:
            result.put_deletions(key, stored.deletions, deletions, self._now)
            result.rows += key in batch.deletions
        static, static_changed = self._static(key, stored, batch.statics.get(key), deletions, result)
        result.rows += static_changed
        return MergedHead(deletions, deleted=deleted, static=static, static_changed=static_changed)

    def _rows(
        self,
        key: bytes,
        stored: Mapping[bytes, StoredRow],
        head: MergedHead,
        rows: Mapping[bytes, RowChanges],
        result: MergeResult[VisibleRow],
        *,
        whole_partition: bool,
    ) -> None:
        deletions = head.deletions
        states: dict[bytes, ClusteredState] = {}
        changed = set[bytes]()
        # A new deletion may cover any stored row of its partition: Cassandra asks at each read (DeletionTime.deletes),
        # a store that shows rows must look once, when the deletion comes.
        every_row = head.deleted or self._all_rows or whole_partition
        for clustering in sorted({*stored, *rows} if every_row else {*rows, *self._due(stored)}):
            # A redelivered row changes nothing, so it is neither decoded nor rendered.
            if self._redelivered(clustering, stored, rows, deletions):
                continue
            state, encoded = self._row(clustering, stored, rows.get(clustering), deletions)
            states[clustering] = state
            if encoded is not None:
                changed.add(clustering)
                result.put((key, clustering), state[0], self._now, state[1], encoded)
        result.rows += len(changed)
        if not self._renderer.whole_partitions:
            for clustering in changed:
                row = self._renderer.row((key, clustering), states[clustering], self._now)
                self._show((key, clustering), row, result)
        # With static columns each visible row repeats them, and a partition without rows shows them alone
        # (SelectStatement.processPartition): one change of a static column renders the whole partition again.
        elif changed or head.static_changed or head.deleted or whole_partition:
            self._show_partition(key, stored, head.static, states, result)

    def _show_partition(
        self,
        key: bytes,
        stored: Mapping[bytes, StoredRow],
        static: RowState | None,
        states: dict[bytes, ClusteredState],
        result: MergeResult[VisibleRow],
    ) -> None:
        for clustering, row in stored.items():
            if clustering not in states:
                states[clustering] = decode_stored(*row.stored).state, row.written_as
        visible = self._renderer.partition(key, static, states.items(), self._now)
        result.visible.update(visible)
        result.hidden.update({(key, clustering) for clustering in (*states, STATIC)} - visible.keys())

    def _due(self, stored: Mapping[bytes, StoredRow]) -> set[bytes]:
        """The rows in which something has expired by now."""
        return {
            clustering
            for clustering, row in stored.items()
            if row.next_expiry is not None and row.next_expiry <= self._now
        }

    def _redelivered(
        self,
        clustering: bytes,
        stored: Mapping[bytes, StoredRow],
        rows: Mapping[bytes, RowChanges],
        deletions: PartitionState,
    ) -> bool:
        row, changes = stored.get(clustering), rows.get(clustering)
        if row is None or changes is None:
            return False
        encoded, generation, stream_id = row.stored
        return is_redelivery(changes, encoded, generation, stream_id, covering(deletions, clustering))

    def _row(
        self,
        clustering: bytes,
        stored: Mapping[bytes, StoredRow],
        changes: RowChanges | None,
        deletions: PartitionState,
    ) -> tuple[ClusteredState, bytes | None]:
        """The row's state after the batch, and its bytes where it is to be stored."""
        row = stored.get(clustering)
        floor = covering(deletions, clustering)
        state, encoded = merge_row(None if row is None else row.stored, changes, floor)
        if row is None:
            return (state, () if changes is None else changes.clustering), encoded
        if encoded is None and row.next_expiry is not None and row.next_expiry <= self._now:
            encoded = row.stored[0]  # its next expiry is another one now
        return (state, row.written_as), encoded

    def _static(
        self,
        key: bytes,
        stored: StoredPartition,
        changes: RowState | None,
        deletions: PartitionState,
        result: MergeResult[VisibleRow],
    ) -> tuple[RowState | None, bool]:
        if stored.static is None and changes is None:
            return None, False
        state = merge_state(stored.static, changes, covering(deletions, STATIC))
        # What has expired is no difference of states: only the next expiry, and what is visible, change.
        due = stored.static_expiry is not None and stored.static_expiry <= self._now
        changed = due or differs(stored.static, state)
        if changed:
            result.put((key, STATIC), state, self._now, None, None)
        return state, changed

    def _show(self, row_key: RowKey, row: VisibleRow | None, result: MergeResult[VisibleRow]) -> None:
        if row is None:
            result.hidden.add(row_key)
        else:
            result.visible[row_key] = row


def mergeable(
    changes: Iterable[Delivered], renderer: RowRenderer[object], refused: list[DeadLetter]
) -> list[Delivered]:
    """The changes that can be merged and rendered; `refused` gets the others as dead letters."""
    # One by one, as a store is asked after a refused batch: a change that none can decode must not hold up the others.
    good = []
    for delivered in changes:
        change = delivered.change
        try:
            gather([delivered])
            # The deletion of a view's row has cells too: ViewUpdateGenerator ends its marker alone, the cells stay.
            if change.op not in (Op.DELETE_PARTITION, Op.DELETE_RANGE, Op.TRUNCATE) and change.key is not None:
                state = state_of(change)
                if change.static:
                    renderer.partition(change.key, state, [], None)
                else:
                    renderer.row((change.key, b""), (state, change.clustering or ()), None)
        except DecodeError as error:
            refused.append(DeadLetter(delivered.record_id, str(error), delivered.message))
        else:
            good.append(delivered)
    return good
