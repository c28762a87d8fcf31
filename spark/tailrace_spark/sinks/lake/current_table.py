"""One current table of a lake: the table that users read, and its state table, which has what later merges need.

A batch is one commit of each, the state first. Each row of the state has the number of the batch that last wrote it,
and the visible table notes up to which batch it shows the state. What a crash between both commits left out is made
from the state when the table is next opened.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tailrace_schemas.errors import ServiceError
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.fast import merges_fast
from tailrace_spark.merge.partition import Known, Merge, Merged
from tailrace_spark.merge.purge import purge_stored
from tailrace_spark.merge.stored_row import RowKey, StateRow, state_row
from tailrace_spark.merge.truncation import absorb_truncations
from tailrace_spark.sinks.lake.fast_rows import FastRows, bucket_of
from tailrace_spark.sinks.lake.row_changes import Puts, puts_of, rows_of
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.state import (
    BATCH,
    IDENTITY,
    WITH_GONE,
    About,
    Purgeable,
    StateTable,
    about_rows,
    known_of,
    plain_state_rows,
    state_rows,
)
from tailrace_spark.sinks.lake.state_reader import StateReading, read_now
from tailrace_spark.sinks.lake.store import LakeStore, LakeTable, Number
from tailrace_spark.sinks.lake.visible_rows import BUCKET, Shown
from tailrace_spark.sinks.naming import CLUSTERING, KEY

log = logging.getLogger("tailrace_spark")

STATE_SUFFIX: Final = "-state"
_NAMED_BY: Final = (BUCKET, KEY, CLUSTERING)
_MICROS: Final = 1_000_000


def state_name(name: str) -> str:
    """The name of the state of a table."""
    return name + STATE_SUFFIX


@dataclass(slots=True)
class CurrentTable:
    """A current table and its state, as they were when they were opened; `new`: not created yet."""

    store: LakeStore
    name: str
    state: StateTable
    about: About
    new: bool = False

    @classmethod
    def open(cls, store: LakeStore, name: str) -> CurrentTable | None:
        """The table of a name; None where there is none that follows anything."""
        stored = store.open(state_name(name))
        if stored is None:
            return None
        state = StateTable(stored)
        about = state.about()
        return None if about is None else cls(store, name, state, about)

    def sweep(self, at: int, ring_delay: float) -> int:
        """Merge what has expired by `at` and what truncations let go by then; how many rows' states changed."""
        known = read_now(self.state, self.state.due(at), self.about.buckets)
        return self.merge(BatchChanges(), self.about, at, ring_delay, known)

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
        batch, purged_to = self.state.batch + 1, self.about.purged_to
        stored, removed, written = _purged(purgeable, until, now)
        about = replace(
            self.about, purged_to=max([*written, *(() if purged_to is None else (purged_to,))], default=None)
        )
        rows = state_rows(stored, removed, batch, about.buckets) + about_rows(about)
        changes = pa.Table.from_pylist(rows, schema=WITH_GONE)
        self.store.merge(state_name(self.name), self.state.stored, changes, IDENTITY, {BATCH: batch})
        nothing = pa.RecordBatchReader.from_batches(visible.schema, [])
        self.store.append(self.name, visible, nothing, {BATCH: batch})
        self.about, self.state.batch = about, batch
        return len(purgeable)

    def merge(self, found: BatchChanges, about: About, at: int, ring_delay: float, known: StateReading) -> int:
        """Merge what was gathered, by what is known now of the whole table; how many rows' states changed.

        `known` are the partitions that it is of, or also others, in which what expired by `at` is looked for too.
        Raises DecodeError before anything is written.
        """
        about, erases = _erasing(about, found, at, ring_delay)
        shown = Shown(about.definition, about.buckets, about.names)
        plain = FastRows(about.definition, about.buckets, len(found.rows))
        if erases:
            keys = {*found.deletions, *found.statics, *(key for key, _ in found.rows), *self.state.all_keys()}
            known = read_now(self.state, keys, about.buckets)
        if erases or not merges_fast(about.definition):
            whole = _joined(known_of(part) for part in known.all())
        else:
            whole, left = self._merge_plain(plain, found, about, at, known)
            found = replace(found, rows=left)
        merged = Merge(shown, about.erased, at, everything=erases).merge(whole, found)
        puts = puts_of(shown, plain, merged, known.parts, at)
        before, anew = self.state.batch, self.state.stored is None
        changed = self._write_state(merged, plain, about, puts.new)
        self._show(shown, puts, changed, before, at, anew=anew)
        return merged.rows + len(plain.keys)

    def _merge_plain(
        self, plain: FastRows, found: BatchChanges, about: About, at: int, known: StateReading
    ) -> tuple[dict[bytes, Known], dict[RowKey, RowChanges]]:
        """Merge each part as it comes; gives the partitions and the rows of them that need more than that."""
        whole, left = dict[bytes, Known](), dict[RowKey, RowChanges]()
        for keys, part in known:
            rows: Iterable[tuple[RowKey, RowChanges]] = (one for one in found.rows.items() if one[0][0] in keys)
            if not part.at:
                rows = sorted(rows, key=_row_key)  # as they will lie: beside what says the same
            intricate = {*found.deletions, *found.statics, *part.intricate(at)}
            some = plain.merge(rows, part, intricate, about.erased)
            whole |= known_of(part, intricate, some)
            left |= some
        return whole, left

    def _write_state(self, merged: Merged[list[object]], plain: FastRows, about: About, new: bool) -> bool:
        """Commit what becomes of the state, and whether there was anything; `new`: none of these rows is there."""
        batch = self.state.batch + 1
        rows = state_rows(merged.kept, merged.gone, batch, about.buckets)
        if self.new or about != self.about:
            if self.new or about.erased != self.about.erased or not _widens(self.about, about):
                about = replace(about, since=batch)
            rows += about_rows(about)
            new = False
        if not rows and not plain.keys:
            return False
        name, there = state_name(self.name), self.state.stored
        table = pa.concat_tables([plain_state_rows(plain, batch), pa.Table.from_pylist(rows, schema=WITH_GONE)])
        if there is None or new:
            batches = table.filter(pc.invert(table["gone"])).drop_columns(["gone"]).to_reader()
            says = f"State of {about.definition}"
            self.store.append(name, there, batches, {BATCH: batch}, partitioned_by="bucket", says=says)
        else:
            self.store.merge(name, there, table, IDENTITY, {BATCH: batch})
        self.about, self.new = about, False
        self.state.batch = batch
        return True

    def _show(self, shown: Shown, puts: Puts, changed: bool, before: int, at: int, *, anew: bool) -> None:
        """Have the table show the state: by what changed now, by what a crash left out, or made anew.

        With `anew` there was no state before.
        """
        stored = self.store.open(self.name)
        batch = 0 if stored is None else stored.version_of(BATCH) or 0
        if stored is None and anew:
            self._rewrite(shown, None, pa.RecordBatchReader.from_batches(shown.schema, puts.rows))
            return
        if batch > before:
            return  # another writer went on with this state, and has shown it
        if stored is None or batch < self.about.since:
            self._show_all(shown, stored, at)
            return
        missing = len(shown.schema) - len(stored.schema)
        if missing:
            empty = pa.RecordBatchReader.from_batches(shown.schema, [])
            self.store.append(self.name, stored, empty, {})
            stored = self.store.open(self.name)
        if stored is None or (stored.version_of(BATCH) or 0) != batch:
            raise ServiceError(f"{self.store.uri(self.name)}: another writer came first, or it has gone")
        if batch < before:
            log.info(
                "%s: the visible table is at batch %d, expected %d; rebuilding it from the state",
                self.name,
                batch,
                before,
            )
            self._show_since(shown, stored, batch, at)
        elif changed and (puts.rows or puts.hidden):
            self._put(shown, stored, puts)

    def _put(self, shown: Shown, stored: LakeTable, puts: Puts) -> None:
        if puts.new:
            batches = pa.RecordBatchReader.from_batches(shown.schema, puts.rows)
            self.store.append(self.name, stored, batches, {BATCH: self.state.batch})
            return
        away = [
            {KEY: key, CLUSTERING: clustering, BUCKET: bucket_of(key, self.about.buckets)}
            for key, clustering in puts.hidden
        ]
        gone = pa.RecordBatch.from_pylist(away, schema=shown.schema)
        both = [*(_marked(rows, False) for rows in puts.rows), _marked(gone, True)]
        self.store.merge(self.name, stored, pa.Table.from_batches(both), _NAMED_BY, {BATCH: self.state.batch})

    def _show_since(self, shown: Shown, stored: LakeTable, batch: int, at: int) -> None:
        """Make the rows of partitions anew that were written after a batch."""
        state = self._state_now()
        keys = state.since(batch)
        known = state.partitions(keys, self.about.buckets)
        rows = rows_of(shown, known, at)
        within = sorted({bucket_of(key, self.about.buckets) for key in keys})
        there = stored.read([KEY, CLUSTERING], Number(BUCKET).among(within), keys)
        hidden = set(zip(there[KEY].to_pylist(), there[CLUSTERING].to_pylist(), strict=True)) - rows.keys()
        self._put(shown, stored, Puts([shown.arrow(list(rows.values()))], hidden, new=False))

    def _show_all(self, shown: Shown, stored: LakeTable | None, at: int) -> None:
        """Make all of it anew, one bucket after the other."""
        state = self._state_now()
        spool = Spool(shown.schema)
        try:
            for number in range(self.about.buckets):
                rows = rows_of(shown, state.bucket(number), at)
                if rows:
                    spool.add(shown.arrow(list(rows.values())))
            self._rewrite(shown, stored, spool.reader())
        finally:
            spool.close()

    def _state_now(self) -> StateTable:
        """The state, with what was committed of it. Raises ServiceError where another writer went on with it: what it
        wrote is its to show."""
        state = StateTable(self.store.open(state_name(self.name)))
        if state.batch != self.state.batch:
            raise ServiceError(f"{self.store.uri(state_name(self.name))}: another writer came first")
        return state

    def _rewrite(self, shown: Shown, stored: LakeTable | None, rows: Any) -> None:
        says = f"{shown.table}, followed"
        noted = {BATCH: self.state.batch}
        self.store.rewrite(self.name, stored, rows, noted, partitioned_by=BUCKET, says=says)


def _row_key(one: tuple[RowKey, RowChanges]) -> RowKey:
    return one[0]


def _purged(
    purgeable: Iterable[Purgeable], until: int, now: int
) -> tuple[list[tuple[StateRow, Sequence[bytes | None] | None]], list[RowKey], list[int]]:
    """What purging leaves of stored states: those to be stored, those to be removed, and the write times that went."""
    stored: list[tuple[StateRow, Sequence[bytes | None] | None]] = []
    removed: list[RowKey] = []
    times: list[int] = []
    for row_key, came, encoded, written_as in purgeable:
        left, written = purge_stored(row_key[1], encoded, until * _MICROS)
        times += () if written is None else (written,)
        if left.empty:
            removed.append(row_key)
        else:
            stored.append((state_row(row_key, left, now, came=came), written_as))
    return stored, removed, times


def _joined(parts: Iterable[Mapping[bytes, Known]]) -> dict[bytes, Known]:
    return {key: known for part in parts for key, known in part.items()}


def _erasing(about: About, found: BatchChanges, at: int, ring_delay: float) -> tuple[About, bool]:
    """What is known of truncations now, and whether that takes more away than before."""
    truncations, floor = absorb_truncations(about.truncations, found.truncations, about.erased, at, ring_delay)
    return replace(about, truncations=truncations, erased=floor or about.erased), floor is not None


def _widens(before: About, after: About) -> bool:
    """Whether all that another definition changes of what is shown are columns more."""
    old, new = before.definition, after.definition
    if old == new and before.names == after.names:
        return True
    there = Shown(old, before.buckets, before.names).schema
    wanted = Shown(new, after.buckets, after.names).schema
    same = all(field.name in wanted.names and wanted.field(field.name) == field for field in there)
    return same and old.dropped == new.dropped and [c.name for c in old.key] == [c.name for c in new.key]


def _marked(batch: Any, gone: bool) -> Any:
    return batch.append_column(WITH_GONE.field("gone"), pa.array([gone] * len(batch), pa.bool_()))
