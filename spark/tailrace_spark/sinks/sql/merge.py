"""Merges changes of one table into its state table and its visible tables, in the caller's transaction.

First all changes of a piece are merged with each other, so a row is read, merged and written once however many
changes it has. Then come the deletions, partition by partition, then static rows, then rows. What merging does not
change is not written.

Of rows the database tells which are stored. The others are inserted as they are, and can be built ahead. Those that
are stored are merged here (`merge.fast`, `merge.row`), the next ones while the database writes some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from tailrace_schemas.change import Deletion
from tailrace_schemas.table import ColumnKind
from tailrace_spark.batch.pieces import prefetched
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.row import covering, differs, merge_state
from tailrace_spark.merge.stored_row import END, ROW, STATIC, PartitionHead, RowKey, StoredState
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    merge_partitions,
)
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.rowstate.row import merge as merge_states
from tailrace_spark.rowstate.truncation import EVERYTHING, TruncationState
from tailrace_spark.sinks.sql.layout import ColumnPlace, LayoutTables
from tailrace_spark.sinks.sql.row_builder import NewRow, RowBuilder, RowMerge, RowUpdate, new_rows
from tailrace_spark.sinks.sql.rows_table import RowWriter, VisibleTable
from tailrace_spark.sinks.state_store.state_table import StateTable, chunks, forget
from tailrace_spark.sinks.table_faults import shown_in_sink

_AT_A_TIME: Final = 100  # rows: so often another thread gets its turn, which compiled code does not give by itself
_WRITTEN_AT_ONCE: Final = 4_000


class TableMerge:
    """Merges into the tables of one layout. `now` is in seconds since the epoch; None: nothing expires."""

    def __init__(self, tables: LayoutTables, dialect: str, filters: RowFilters = ()) -> None:
        """Rows that filters leave out are stored, and not shown. Raises TableRefusedError where these do not fit."""
        self.tables = tables
        shown_rows = shown_in_sink(filters, tables.layout.definition)
        self._state = StateTable(tables.state, dialect)
        self._rows = VisibleTable(tables, dialect, static=False, shown_rows=shown_rows)
        self._statics = None if tables.static is None else VisibleTable(tables, dialect, static=True)
        self._builder = RowBuilder(self._rows.renderer)
        self._writer = RowWriter(self._state, self._rows)
        self._mostly_new = True

    def reload(self) -> None:
        """Ask the database again what was known of it: the transaction was taken back to a savepoint."""
        self._state.reload()

    def prepare(self, batch: BatchChanges, truncations: TruncationState, now: int) -> PreparedBatch:
        """Build rows ahead, also in another thread, where most of them are likely to be new."""
        new: dict[RowKey, NewRow] = {}
        if self._mostly_new:
            for keys in chunks(sorted(batch.rows), _AT_A_TIME):
                new.update(new_rows(self._builder, batch.rows, keys, now))
        return PreparedBatch(self, batch, truncations, now, new)

    def merge(
        self,
        connection: sa.Connection,
        batch: BatchChanges,
        now: int | None = None,
        prepared: Mapping[RowKey, NewRow] = MappingProxyType({}),
    ) -> int:
        """Merge a batch; how many rows' states changed, those that a deletion removed among them.

        `prepared` are rows that `prepare` built for `now`.
        """
        changed = 0
        keys = {*batch.deletions, *batch.statics, *(key for key, _ in batch.rows)}
        heads = self._state.heads(connection, keys)
        partitions = {key: head.deletions for key, head in heads.items()}
        for key, deletions in batch.deletions.items():
            stored = partitions.get(key, NOTHING_DELETED)
            merged = merge_partitions(stored, deletions)
            partitions[key] = merged
            if merged != stored:
                self._state.write_deletions(connection, key, stored, merged, now)
                changed += self._delete(connection, key, stored, merged, now)
        changed += self._merge_statics(connection, batch, heads, partitions, now)
        if batch.rows:
            changed += self._merge_rows(connection, batch.rows, partitions, now, prepared)
        return changed

    def sweep(self, connection: sa.Connection, now: int) -> int:
        """Show what has expired by `now` as it reads then; how many rows changed."""
        changed = 0
        for stored in self._state.due(connection, now):
            states = {row_key: row.state for row_key, row in stored.items()}
            self._update(connection, states, now)
            changed += len(states)
        return changed

    def purge(self, connection: sa.Connection, until: int, now: int, limit: int) -> tuple[int, int | None]:
        """Forget what only deletes, or has expired, and was written and came by `until`; of at most `limit` rows.

        Both times in seconds. What is visible stays. Gives how many rows changed, and the largest write time of what
        went, in microseconds: changes as old come too late from then on.
        """
        purged = forget(self._state, connection, until, now, limit)
        return len(purged), max([written for _, written in purged if written is not None], default=None)

    def show_again(self, connection: sa.Connection, stale: list[ColumnPlace], now: int | None = None) -> None:
        """Bring rows up to date that have a value in these columns: the source dropped them, or they read otherwise.

        Of a dropped column a row loses the value, which may be its last one.
        """
        for column in stale:
            visible = self._statics if column.kind is ColumnKind.STATIC else self._rows
            if visible is None:
                continue
            for keys in visible.with_value(connection, column):
                stored = self._state.rows(connection, keys)
                if not column.live:
                    visible.clear(connection, keys, column)
                visible.update(connection, {key: stored[key].state for key in keys if key in stored}, now)

    def erase(self, connection: sa.Connection, floor: Deletion, now: int | None) -> int:
        """Erase what a truncation took of all that is stored; how many rows."""
        visible_tables = [visible for visible in (self._rows, self._statics) if visible is not None]
        if floor == EVERYTHING:
            for visible in visible_tables:
                visible.forget_all(connection)
            return self._state.forget_all(connection)
        for visible in visible_tables:
            visible.forget_older(connection, floor.written)
        changed = self._state.forget_older(connection, floor.written)
        for stored in self._state.since(connection, floor.written):
            changed += self._cover(connection, stored, floor, now)
        return changed

    def amend(
        self,
        connection: sa.Connection,
        states: Mapping[RowKey, RowState],
        to_show: Mapping[RowKey, Clustering],
        now: int,
    ) -> None:
        """As ComparableSink says."""
        stored = self._state.rows(connection, sorted(states.keys() | to_show.keys()))
        merged = {key: merge_states(row.state, states[key]) for key, row in stored.items() if key in states}
        self._update(connection, merged, now)
        again = {key: (merged.get(key, stored[key].state), to_show[key]) for key in to_show if key in stored}
        unknown = [key for key in states if key not in stored]
        for visible, static in ((self._rows, False), (self._statics, True)):
            if visible is not None:
                visible.put(connection, {key: row for key, row in again.items() if (key[1] == STATIC) is static}, now)
                visible.remove(connection, [key for key in unknown if (key[1] == STATIC) is static])

    def _delete(
        self, connection: sa.Connection, key: bytes, stored: PartitionState, merged: PartitionState, now: int | None
    ) -> int:
        """Take a partition's new deletions to its rows. Rows that are older as a whole go without being read."""
        areas = [area for area in merged.ranges if area not in stored.ranges]
        if merged.deletion is not None and merged.deletion != stored.deletion:
            areas.append(RangeDeletion(b"", None, merged.deletion))
        changed = 0
        for area in areas:
            low, high = ROW + area.start, END if area.end is None else ROW + area.end
            self._rows.delete_older(connection, key, low, high, area.deletion.written)
            changed += self._state.delete_older(connection, key, low, high, area.deletion.written)
            for rows in self._state.between(connection, key, low, high):
                changed += self._cover(connection, rows, area.deletion, now)
        return changed

    def _cover(
        self, connection: sa.Connection, stored: Mapping[RowKey, StoredState], deletion: Deletion, now: int | None
    ) -> int:
        """Leave out of stored rows what a deletion covers; how many rows changed."""
        states = {row_key: merge_state(row, None, deletion) for row_key, row in stored.items()}
        changed = {row_key: state for row_key, state in states.items() if stored[row_key].differs(state)}
        self._update(connection, changed, now)
        return len(changed)

    def _update(self, connection: sa.Connection, states: Mapping[RowKey, RowState], now: int | None) -> None:
        """Write states of stored rows and static rows, and what is visible of them."""
        self._state.write(connection, states, now)
        self._rows.update(connection, {key: state for key, state in states.items() if key[1] != STATIC}, now)
        if self._statics is not None:
            statics = {key: state for key, state in states.items() if key[1] == STATIC}
            self._statics.update(connection, statics, now)

    def _covering(self, partitions: Mapping[bytes, PartitionState], row_key: RowKey) -> Deletion | None:
        return covering(partitions.get(row_key[0]), row_key[1])

    def _merge_statics(
        self,
        connection: sa.Connection,
        batch: BatchChanges,
        heads: Mapping[bytes, PartitionHead],
        partitions: Mapping[bytes, PartitionState],
        now: int | None,
    ) -> int:
        deleted = {key for key in batch.deletions if key in heads and heads[key].static is not None}
        changed: dict[RowKey, RowState] = {}
        for key in {*batch.statics, *deleted}:
            stored = heads[key].static if key in heads else None
            state = merge_state(stored, batch.statics.get(key), self._covering(partitions, (key, STATIC)))
            if differs(stored, state):
                changed[key, STATIC] = state
        if changed and self._statics is not None:
            self._state.write(connection, changed, now)
            self._statics.put(connection, {row_key: (state, ()) for row_key, state in changed.items()}, now)
        return len(changed)

    def _merge_rows(
        self,
        connection: sa.Connection,
        rows: Mapping[RowKey, RowChanges],
        partitions: Mapping[bytes, PartitionState],
        now: int | None,
        prepared: Mapping[RowKey, NewRow],
    ) -> int:
        """Insert rows that are not stored as they are; merge the others with their stored rows."""
        keys = sorted(rows)
        stored_rows = self._state.encoded(connection, keys)
        self._mostly_new = 2 * len(stored_rows) < len(keys)
        new: list[NewRow] = []
        merges: list[RowMerge] = []
        for row_key in keys:
            changes, floor = rows[row_key], self._covering(partitions, row_key) if partitions else None
            if (stored := stored_rows.get(row_key)) is not None:
                merges.append((row_key, changes, stored, floor))
                continue
            row = prepared.get(row_key) if floor is None else None
            if row is None:
                row = self._builder.insert(row_key, changes, floor, now)
            if row is not None:
                new.append(row)
        self._writer.insert(connection, new)
        changed = len(new)
        for updates in prefetched(self._updates(chunk, now) for chunk in chunks(merges, _WRITTEN_AT_ONCE)):
            self._writer.update(connection, updates)
            changed += len(updates)
        return changed

    def _updates(self, rows: Sequence[RowMerge], now: int | None) -> list[RowUpdate]:
        return [update for chunk in chunks(rows, _AT_A_TIME) for update in self._builder.update(chunk, now)]


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Changes of one table, merged with each other, and rows built of them for `merge` as they read at `now`.

    `truncations` were known of it then. `new` rows are right where nothing is stored of them, and no deletion covers
    them.
    """

    merge: TableMerge
    batch: BatchChanges
    truncations: TruncationState
    now: int
    new: Mapping[RowKey, NewRow]
