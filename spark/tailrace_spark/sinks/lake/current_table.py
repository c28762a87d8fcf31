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

from tailrace_common.sections.template import CLUSTERING, KEY
from tailrace_schemas.change import Deletion
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.erasure import erase_partitions
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, StoredPartition
from tailrace_spark.merge.row import merges_fast
from tailrace_spark.merge.stored_row import RowKey, StateTableRow, purge_stored, state_row
from tailrace_spark.merge.table_record import purge
from tailrace_spark.sinks.arrow.types import conform
from tailrace_spark.sinks.lake.fast_rows import FastRows, bucket_of
from tailrace_spark.sinks.lake.history_table import Spool
from tailrace_spark.sinks.lake.staging import Staged, commit
from tailrace_spark.sinks.lake.state import (
    BATCH,
    IDENTITY,
    WITH_GONE,
    Purgeable,
    StateReading,
    StateTable,
    TableEntry,
    entry_rows,
    fast_state_rows,
    read_now,
    state_rows,
    stored_partitions,
)
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable
from tailrace_spark.sinks.lake.visible_rows import BUCKET, LakeRowRenderer, VisibleChanges, rows_of, visible_changes
from tailrace_spark.sinks.table_faults import shown_in_sink

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

    `entry` is the table's then. `count`: of how many rows the states changed.
    """

    renderer: LakeRowRenderer
    state: Any
    changes: VisibleChanges
    entry: TableEntry
    count: int


@dataclass(frozen=True, slots=True)
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

    @classmethod
    def to_make(cls, store: LakeStore, name: str, table: Table, filters: RowFilters) -> CurrentTable:
        """One that is to follow a table; its entry has no buckets yet."""
        state = StateTable(store.open(state_name(name)))
        return cls(store, name, state, TableEntry(table), new=True, filters=filters)

    @property
    def is_shown(self) -> bool:
        """Whether the visible table shows what the state has."""
        visible = self.store.open(self.name)
        return visible is not None and visible.version_of(BATCH) == self.state.batch

    def prepared(self, entry: TableEntry, now: int) -> CurrentTable:
        """The table as an entry of another definition says: both are there, and the visible one shows the state.

        Raises TableRefusedError where filters do not fit the definition, before anything is written.
        """
        renderer = self._renderer(entry)
        noted = self._noted(entry) if self.new or entry != self.entry else self
        return noted.shown(renderer, now)

    def sweep(self, now: int) -> int:
        """Merge what has expired by `now`; how many rows' states changed."""
        stored = read_now(self.state, self.state.due(now), self.entry.buckets)
        merged = self.merged(BatchChanges(), self.entry, None, now, stored)
        commit(self.store, self.staged(merged, here=True))
        return merged.count

    def purge(self, until: int, now: int, limit: int) -> int:
        """Forget what only deletes, or has expired, and was written and came by `until`; how many states changed.

        Both times in seconds; `limit`: states in one commit. What is visible stays. The commit also notes the largest
        write time that went: changes as old come too late from then on.
        """
        purgeable = self.state.purgeable(until, limit) if self.is_shown else []
        if purgeable:
            stored, removed, written = _purged(purgeable, until, now)
            rows = state_rows(stored, removed, self.state.batch + 1, self.entry.buckets)
            rows += entry_rows(purge(self.entry, written))
            state = self._staged(
                state_name(self.name), pa.Table.from_pylist(rows, schema=WITH_GONE), IDENTITY, here=True
            )
            commit(self.store, [state, self._staged(self.name, None, NAMED_BY)])
        return len(purgeable)

    def merged(
        self, batch: BatchChanges, entry: TableEntry, erased: Deletion | None, now: int, stored: StateReading
    ) -> MergedRows:
        """What merging a batch by the table's entry of now puts into both tables; nothing is written.

        `erased` is what truncations take of the stored rows before. `stored` are the partitions of the batch, and
        perhaps others, in which what has expired by `now` is merged. Raises DecodeError, and TableRefusedError where
        filters do not fit the definition.
        """
        renderer = self._renderer(entry)
        fast = FastRows(entry.definition, entry.buckets, len(batch.rows), renderer.shown_rows)
        if erased is not None:
            entry = replace(entry, since=self.state.batch + 1)
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
        return MergedRows(renderer, state, changes, entry, result.rows + len(fast.keys))

    def staged(self, merged: MergedRows, *, here: bool = False) -> list[Staged]:
        """What a merge puts into both tables, as files that no commit names yet: the state's first, which counts."""
        state, changes = merged.state, merged.changes
        if merged.entry != self.entry:
            state = pa.concat_tables([state, pa.Table.from_pylist(entry_rows(merged.entry), schema=WITH_GONE)])
        elif changes.new and len(state):
            batches = without_gone(state).to_batches()
            return [
                self._added(state_name(self.name), batches, here=here),
                self._added(self.name, changes.rows, here=here),
            ]
        if not len(state):
            return []
        rows = marked_rows(merged.renderer, changes, self.entry.buckets)
        return [
            self._staged(state_name(self.name), state, IDENTITY, here=here),
            self._staged(self.name, rows, NAMED_BY, here=here),
        ]

    def _added(self, name: str, batches: Sequence[Any], *, here: bool) -> Staged:
        table = self._opened(name)
        rows = pa.RecordBatchReader.from_batches(table.schema, (conform(batch, table.schema) for batch in batches))
        return self._of_batch(name, table, self.store.stage(name, table, rows, here=here))

    def _staged(self, name: str, rows: Any | None, named_by: Sequence[str], *, here: bool = False) -> Staged:
        table = self._opened(name)
        if rows is None or not len(rows):
            return self._of_batch(name, table, ())
        return self._of_batch(name, table, *self.store.stage_merge(name, table, rows, named_by, here=here))

    def _of_batch(self, name: str, table: LakeTable, files: Sequence[Any], replaced: Sequence[str] = ()) -> Staged:
        batch = self.state.batch
        return Staged(name, table.identity, {BATCH: batch}, {BATCH: batch + 1}, tuple(files), tuple(replaced))

    def _opened(self, name: str) -> LakeTable:
        table = self.store.open(name)
        if table is None:
            raise ServiceError(f"{self.store.uri(name)} has gone")
        return table

    def _renderer(self, entry: TableEntry) -> LakeRowRenderer:
        shown_rows = shown_in_sink(self.filters, entry.definition)
        return LakeRowRenderer(entry.definition, entry.buckets, entry.names, shown_rows)

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

    def _noted(self, entry: TableEntry) -> CurrentTable:
        """The table with another entry, which its state has from now on."""
        name, batch = state_name(self.name), self.state.batch + 1
        if self.new or not _widens(self.entry, entry):
            entry = replace(entry, since=batch)
        rows = pa.Table.from_pylist(entry_rows(entry), schema=WITH_GONE)
        if self.state.stored is None:
            says = f"State of {entry.definition}"
            batches = without_gone(rows).to_reader()
            self.store.make(name, batches, {BATCH: batch}, partitioned_by="bucket", says=says)
        else:
            commit(self.store, [self._staged(name, rows, IDENTITY, here=True)])
        noted = CurrentTable.open(self.store, self.name, self.filters)
        if noted is None:
            raise ServiceError(f"{self.store.uri(name)} has gone")
        return noted

    def shown(self, renderer: LakeRowRenderer, now: int) -> CurrentTable:
        """Have the visible table show the state: what a crash left out, or all of it by another definition."""
        visible = self.store.open(self.name)
        shown = 0 if visible is None else visible.version_of(BATCH) or 0
        if visible is None or shown < self.entry.since:
            self._show_all(renderer, visible, now)
            return self
        if len(renderer.schema) > len(visible.schema):
            self.store.widen(self.name, visible, renderer.schema)
        if shown < self.state.batch:
            self._show_since(renderer, shown, now)
        return self

    def _show_since(self, renderer: LakeRowRenderer, batch: int, now: int) -> None:
        """Show the partitions again that were stored after a batch; none, where these are the table's entry alone."""
        keys = self.state.since(batch)
        if keys:
            log.info(
                "%s: the visible table is at batch %d, expected %d; rebuilding it from the state",
                self.name, batch, self.state.batch,
            )  # fmt: skip
        visible = self._opened(self.name)
        rows = rows_of(renderer, self.state.partitions(keys, self.entry.buckets), now)
        buckets = sorted({bucket_of(key, self.entry.buckets) for key in keys})
        existing = visible.read([KEY, CLUSTERING], [(BUCKET, "in", buckets)], keys)
        hidden = set(zip(existing[KEY].to_pylist(), existing[CLUSTERING].to_pylist(), strict=True)) - rows.keys()
        changes = VisibleChanges([renderer.arrow(list(rows.values()))], hidden, new=False)
        marked = marked_rows(renderer, changes, self.entry.buckets)
        files, replaced = (
            ((), ()) if not len(marked) else self.store.stage_merge(self.name, visible, marked, NAMED_BY, here=True)
        )
        self.store.commit_staged(self.name, visible, files, {BATCH: self.state.batch}, replaced)

    def _show_all(self, renderer: LakeRowRenderer, visible: LakeTable | None, now: int) -> None:
        """Rewrite the whole visible table, one bucket after the other, or make it."""
        spool, versions = Spool(renderer.schema), {BATCH: self.state.batch}
        try:
            for bucket in range(self.entry.buckets):
                rows = rows_of(renderer, self.state.bucket(bucket), now)
                if rows:
                    spool.add(renderer.arrow(list(rows.values())))
            if visible is None:
                says = f"{renderer.table}, followed"
                self.store.make(self.name, spool.reader(), versions, partitioned_by=BUCKET, says=says)
            else:
                self.store.rewrite(self.name, visible, spool.reader(), versions)
        finally:
            spool.close()


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
