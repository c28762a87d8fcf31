"""One current table of a lake: the table that users read, and its state table, which has what later merges need.

A batch is one commit of each, the state first. Each row of the state has the number of the batch that last wrote it.
The visible table notes up to which batch it shows the state. What a crash between both commits left out is rendered
from the state when the table is next written.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import ServiceError
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.fast import merges_fast
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, StoredPartition
from tailrace_spark.merge.purge import purge_stored
from tailrace_spark.merge.row_filter import RowFilters
from tailrace_spark.merge.stored_row import RowKey, StateTableRow, state_row
from tailrace_spark.merge.table_record import purge
from tailrace_spark.sinks.lake.fast_rows import FastRows, bucket_of
from tailrace_spark.sinks.lake.row_changes import VisibleChanges, rows_of, visible_changes
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.state import (
    BATCH,
    IDENTITY,
    WITH_GONE,
    Purgeable,
    StateTable,
    TableEntry,
    entry_rows,
    fast_state_rows,
    state_rows,
    stored_partitions,
)
from tailrace_spark.sinks.lake.state_reader import StateReading, read_now
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable, Number
from tailrace_spark.sinks.lake.visible_rows import BUCKET, LakeRowRenderer
from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.shown_rows import shown_in_sink

log = logging.getLogger("tailrace_spark")

STATE_SUFFIX: Final = "-state"
NAMED_BY: Final = (BUCKET, KEY, CLUSTERING)
"""The columns that name a visible row."""
_MICROS: Final = 1_000_000


def state_name(name: str) -> str:
    """The name of the state of a table."""
    return name + STATE_SUFFIX


@dataclass(frozen=True, slots=True)
class MergedRows:
    """What a merge puts into both tables: states, a pyarrow Table of WITH_GONE, and what is visible of them.

    `count`: of how many rows the states changed.
    """

    renderer: LakeRowRenderer
    state: Any
    changes: VisibleChanges
    count: int


@dataclass(slots=True)
class CurrentTable:
    """A current table and its state, as they were when they were opened; `new`: not created yet.

    Rows that the filters leave out are in the state, and not in the visible table.
    """

    store: LakeStore
    name: str
    state: StateTable
    entry: TableEntry
    new: bool = False
    filters: RowFilters = ()

    @classmethod
    def open(cls, store: LakeStore, name: str, filters: RowFilters = ()) -> CurrentTable | None:
        """The table of a name; None where there is none that follows anything."""
        stored = store.open(state_name(name))
        if stored is None:
            return None
        state = StateTable(stored)
        entry = state.entry()
        return None if entry is None else cls(store, name, state, entry, filters=filters)

    def sweep(self, now: int) -> int:
        """Merge what has expired by `now`; how many rows' states changed."""
        stored = read_now(self.state, self.state.due(now), self.entry.buckets)
        return self.merge(BatchChanges(), self.entry, None, now, stored)

    def purge(self, until: int, now: int, limit: int) -> int:
        """Forget what only deletes, or has expired, and was written and came by `until`; how many states changed.

        Both times in seconds; `limit`: states in one commit. What is visible stays. The commit also notes the largest
        write time that went: changes as old come too late from then on.
        """
        visible = self.store.open(self.name)
        if visible is None or visible.version_of(BATCH) != self.state.batch:
            return 0  # what it does not show yet is found by the states that a purge may take away
        purgeable = self.state.purgeable(until, limit)
        if not purgeable:
            return 0
        batch = self.state.batch + 1
        stored, removed, written = _purged(purgeable, until, now)
        entry = purge(self.entry, written)
        rows = state_rows(stored, removed, batch, entry.buckets) + entry_rows(entry)
        changes = pa.Table.from_pylist(rows, schema=WITH_GONE)
        self.store.merge(state_name(self.name), self.state.stored, changes, IDENTITY, {BATCH: batch})
        self._note(visible, batch)
        self.entry, self.state.batch = entry, batch
        return len(purgeable)

    def merge(
        self, batch: BatchChanges, entry: TableEntry, erased: Deletion | None, now: int, stored: StateReading
    ) -> int:
        """As `merged`, and written; how many rows' states changed. Raises DecodeError before anything is written."""
        merged = self.merged(batch, entry, erased, now, stored)
        former, created = self.state.batch, self.state.stored is None
        changed = self._write_state(merged, entry, erases=erased is not None)
        self._show(merged.renderer, merged.changes, changed, former, now, created=created)
        return merged.count

    def merged(
        self, batch: BatchChanges, entry: TableEntry, erased: Deletion | None, now: int, stored: StateReading
    ) -> MergedRows:
        """What merging a batch by the table's entry of now puts into both tables; nothing is written.

        `erased` is what truncations take of the stored rows before. `stored` are the partitions of the batch, and
        perhaps others, in which what has expired by `now` is merged. Raises DecodeError, and TableRefusedError where
        filters do not fit the definition.
        """
        shown_rows = shown_in_sink(self.filters, entry.definition)
        renderer = LakeRowRenderer(entry.definition, entry.buckets, entry.names, shown_rows)
        fast = FastRows(entry.definition, entry.buckets, len(batch.rows), shown_rows)
        if erased is not None:
            keys = {*batch.deletions, *batch.statics, *(key for key, _ in batch.rows), *self.state.all_keys()}
            stored = read_now(self.state, keys, entry.buckets)
        if erased is not None or not merges_fast(entry.definition):
            partitions = _joined(stored_partitions(stored_rows) for stored_rows in stored.all())
        else:
            partitions, rows = self._merge_fast(fast, batch, now, stored)
            batch = replace(batch, rows=rows)
        erasing = MergeResult[list[object]]()
        remaining: Mapping[bytes, StoredPartition] = partitions
        if erased is not None:
            remaining, erasing = erase_partitions(renderer, partitions, erased, now)
        result = erasing.then(PartitionMerge(renderer, now).merge(remaining, batch))
        changes = visible_changes(renderer, fast, result, stored.parts, now)
        batch_number = self.state.batch + 1
        rows = pa.Table.from_pylist(
            state_rows(result.stored, result.removed, batch_number, entry.buckets), schema=WITH_GONE
        )
        state = pa.concat_tables([fast_state_rows(fast, batch_number), rows])
        return MergedRows(renderer, state, changes, result.rows + len(fast.keys))

    def prepare(self, entry: TableEntry, now: int) -> None:
        """Have both tables there, by an entry, and the visible one show what the state has, for tasks to go on."""
        self.merge(BatchChanges(), entry, None, now, read_now(self.state, (), entry.buckets))

    def _merge_fast(
        self, fast: FastRows, batch: BatchChanges, now: int, stored: StateReading
    ) -> tuple[dict[bytes, StoredPartition], dict[RowKey, RowChanges]]:
        """Merge each part of the stored rows when it comes; gives the partitions and rows that need row states."""
        partitions, slow = dict[bytes, StoredPartition](), dict[RowKey, RowChanges]()
        for keys, stored_rows in stored:
            rows: Iterable[tuple[RowKey, RowChanges]] = (row for row in batch.rows.items() if row[0][0] in keys)
            if not stored_rows.at:
                rows = sorted(rows, key=_row_key)  # in the order of the new file: like values side by side
            intricate = {*batch.deletions, *batch.statics, *stored_rows.intricate(now)}
            slow_rows = fast.merge(rows, stored_rows, intricate)
            partitions |= stored_partitions(stored_rows, intricate, slow_rows)
            slow |= slow_rows
        return partitions, slow

    def _write_state(self, merged: MergedRows, entry: TableEntry, *, erases: bool) -> bool:
        """Commit the stored rows that changed; whether any did. `erases`: a truncation took stored rows."""
        batch, new, rows = self.state.batch + 1, merged.changes.new, list[dict[str, Any]]()
        if self.new or entry != self.entry:
            if self.new or erases or not _widens(self.entry, entry):
                entry = replace(entry, since=batch)
            rows = entry_rows(entry)
            new = False
        table = pa.concat_tables([merged.state, pa.Table.from_pylist(rows, schema=WITH_GONE)])
        if not len(table):
            return False
        name, stored = state_name(self.name), self.state.stored
        if stored is None or new:
            batches = without_gone(table).to_reader()
            says = f"State of {entry.definition}"
            self.store.append(name, stored, batches, {BATCH: batch}, partitioned_by="bucket", says=says)
        else:
            self.store.merge(name, stored, table, IDENTITY, {BATCH: batch})
        self.entry, self.new = entry, False
        self.state.batch = batch
        return True

    def _show(
        self,
        renderer: LakeRowRenderer,
        changes: VisibleChanges,
        changed: bool,
        former: int,
        now: int,
        *,
        created: bool,
    ) -> None:
        """Have the visible table show the state: by the changes of now, by what a crash left out, or rewritten.

        `former`: the state's batch before; `created`: there was no state before.
        """
        visible = self.store.open(self.name)
        batch = 0 if visible is None else visible.version_of(BATCH) or 0
        if visible is None and created:
            self._rewrite(renderer, None, pa.RecordBatchReader.from_batches(renderer.schema, changes.rows))
            return
        if batch > former:
            return  # another writer went on with this state, and has shown it
        if visible is None or batch < self.entry.since:
            self._show_all(renderer, visible, now)
            return
        if len(renderer.schema) > len(visible.schema):
            no_rows = pa.RecordBatchReader.from_batches(renderer.schema, [])
            self.store.append(self.name, visible, no_rows, {})
            visible = self.store.open(self.name)
        if visible is None or (visible.version_of(BATCH) or 0) != batch:
            raise ServiceError(f"{self.store.uri(self.name)}: another writer came first, or it has gone")
        if batch < former:
            log.info(
                "%s: the visible table is at batch %d, expected %d; rebuilding it from the state",
                self.name,
                batch,
                former,
            )
            self._show_since(renderer, visible, batch, now)
        elif changed and (changes.rows or changes.hidden):
            self._put(renderer, visible, changes)
        elif changed:
            # Nothing to show, as of a new definition: the next batch is not to look for what a crash left out.
            self._note(visible, self.state.batch)

    def _note(self, visible: LakeTable, batch: int) -> None:
        """Have the visible table, which shows the state as of a batch, say so."""
        no_rows = pa.RecordBatchReader.from_batches(visible.schema, [])
        self.store.append(self.name, visible, no_rows, {BATCH: batch})

    def _put(self, renderer: LakeRowRenderer, visible: LakeTable, changes: VisibleChanges) -> None:
        if changes.new:
            batches = pa.RecordBatchReader.from_batches(renderer.schema, changes.rows)
            self.store.append(self.name, visible, batches, {BATCH: self.state.batch})
            return
        rows = marked_rows(renderer, changes, self.entry.buckets)
        self.store.merge(self.name, visible, rows, NAMED_BY, {BATCH: self.state.batch})

    def _show_since(self, renderer: LakeRowRenderer, visible: LakeTable, batch: int, now: int) -> None:
        """Show the partitions again that were stored after a batch."""
        state = self._reopened_state()
        keys = state.since(batch)
        rows = rows_of(renderer, state.partitions(keys, self.entry.buckets), now)
        buckets = sorted({bucket_of(key, self.entry.buckets) for key in keys})
        existing = visible.read([KEY, CLUSTERING], Number(BUCKET).among(buckets), keys)
        hidden = set(zip(existing[KEY].to_pylist(), existing[CLUSTERING].to_pylist(), strict=True)) - rows.keys()
        self._put(renderer, visible, VisibleChanges([renderer.arrow(list(rows.values()))], hidden, new=False))

    def _show_all(self, renderer: LakeRowRenderer, visible: LakeTable | None, now: int) -> None:
        """Rewrite the whole visible table, one bucket after the other."""
        state = self._reopened_state()
        spool = Spool(renderer.schema)
        try:
            for bucket in range(self.entry.buckets):
                rows = rows_of(renderer, state.bucket(bucket), now)
                if rows:
                    spool.add(renderer.arrow(list(rows.values())))
            self._rewrite(renderer, visible, spool.reader())
        finally:
            spool.close()

    def _reopened_state(self) -> StateTable:
        """The state with what this table committed of it.

        Raises ServiceError where another writer went on with it: that one shows what it wrote.
        """
        state = StateTable(self.store.open(state_name(self.name)))
        if state.batch != self.state.batch:
            raise ServiceError(f"{self.store.uri(state_name(self.name))}: another writer came first")
        return state

    def _rewrite(self, renderer: LakeRowRenderer, visible: LakeTable | None, rows: Any) -> None:
        versions = {BATCH: self.state.batch}
        says = f"{renderer.table}, followed"
        self.store.rewrite(self.name, visible, rows, versions, partitioned_by=BUCKET, says=says)


def without_gone(rows: Any) -> Any:
    """Those of a pyarrow Table's rows that are to be there, without the column that says so."""
    return rows.filter(pc.invert(rows["gone"])).drop_columns(["gone"])


def marked_rows(renderer: LakeRowRenderer, changes: VisibleChanges, buckets: int) -> Any:
    """A pyarrow Table of visible rows, and of the names of those that go, with `gone`."""
    keys = [{KEY: key, CLUSTERING: clustering, BUCKET: bucket_of(key, buckets)} for key, clustering in changes.hidden]
    hidden = pa.RecordBatch.from_pylist(keys, schema=renderer.schema)
    return pa.Table.from_batches([*(_marked(batch, False) for batch in changes.rows), _marked(hidden, True)])


def _row_key(row: tuple[RowKey, RowChanges]) -> RowKey:
    return row[0]


def _purged(
    purgeable: Iterable[Purgeable], until: int, now: int
) -> tuple[list[tuple[StateTableRow, Sequence[bytes | None] | None]], list[RowKey], list[int]]:
    """What purging leaves of stored states: those to be stored, those to be removed, and the write times that went."""
    stored: list[tuple[StateTableRow, Sequence[bytes | None] | None]] = []
    removed: list[RowKey] = []
    times: list[int] = []
    for row_key, arrived, encoded, written_as in purgeable:
        remaining, written = purge_stored(row_key[1], encoded, until * _MICROS)
        times += () if written is None else (written,)
        if remaining.empty:
            removed.append(row_key)
        else:
            stored.append((state_row(row_key, remaining, now, arrived=arrived), written_as))
    return stored, removed, times


def _joined(parts: Iterable[Mapping[bytes, StoredPartition]]) -> dict[bytes, StoredPartition]:
    return {key: partition for partitions in parts for key, partition in partitions.items()}


def _widens(before: TableEntry, after: TableEntry) -> bool:
    """Whether the visible table gets columns by another definition, and changes in nothing else."""
    old, new = before.definition, after.definition
    if old == new and before.names == after.names:
        return True
    existing = LakeRowRenderer(old, before.buckets, before.names).schema
    new_schema = LakeRowRenderer(new, after.buckets, after.names).schema
    unchanged = all(field.name in new_schema.names and new_schema.field(field.name) == field for field in existing)
    return unchanged and old.dropped == new.dropped and [c.name for c in old.key] == [c.name for c in new.key]


def _marked(batch: Any, removed: bool) -> Any:
    return batch.append_column(WITH_GONE.field("gone"), pa.array([removed] * len(batch), pa.bool_()))
