"""Merges changes of one table into its state and what the view shows, in the caller's transaction.

First all changes of the piece are merged with each other: a row is read, merged and written once however many
changes it has. Then partition by partition what is deleted, then static rows, then rows.

Of rows it is asked first which are there. The others go in as they are: the fast path, whose rows can be made ahead.
Those that are there are merged here, the next ones while the database writes some. What merging does not change is
not written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import sqlalchemy as sa

from tailrace_schemas.change import Deletion
from tailrace_schemas.table import ColumnKind
from tailrace_spark.batch.prefetch import prefetched
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.partition_head import PartitionHead
from tailrace_spark.merge.row import covering, differs, merge_state
from tailrace_spark.merge.state_keys import END, ROW, STATIC
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.deletions import (
    NOTHING_DELETED,
    PartitionState,
    RangeDeletion,
    merge_partitions,
    truncate_deletions,
)
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.sql.catalog import Target
from tailrace_spark.sinks.sql.layout import ColumnPlace
from tailrace_spark.sinks.sql.row_builder import NewRow, RowBuilder, RowMerge, RowUpdate, new_rows
from tailrace_spark.sinks.sql.row_writer import RowWriter
from tailrace_spark.sinks.sql.rows_table import VisibleTable
from tailrace_spark.sinks.state_store.purge import forget
from tailrace_spark.sinks.state_store.state_table import StateTable, chunks
from tailrace_spark.sinks.state_store.truncations import Truncations

_AT_A_TIME: Final = 100  # rows: so often another thread gets its turn, which compiled code does not give by itself
_WRITTEN_AT_ONCE: Final = 4_000


class TableMerge:
    """Merges into the tables of one target."""

    def __init__(self, target: Target, dialect: str, truncations: Truncations) -> None:
        self.target = target
        self._truncations = truncations
        self._state = StateTable(target.state, dialect)
        self._rows = VisibleTable(target, dialect, static=False)
        self._statics = None if target.static is None else VisibleTable(target, dialect, static=True)
        self._builder = RowBuilder(self._rows.renderer)
        self._writer = RowWriter(self._state, self._rows)
        self._mostly_new = True

    def reload(self, connection: sa.Connection) -> None:
        """Read what is kept of the table in memory anew: the transaction was taken back to a savepoint."""
        self._truncations.load(connection)
        self._state.reload()

    def prepare(self, found: BatchChanges, at: int) -> PreparedBatch:
        """What can be made of rows ahead, in another thread too, where most of them are likely to be new."""
        new: dict[RowKey, NewRow] = {}
        if self._mostly_new:
            for keys in chunks(sorted(found.rows), _AT_A_TIME):
                new.update(new_rows(self._builder, found.rows, keys, at))
        return PreparedBatch(self, found, at, new)

    def merge(
        self,
        connection: sa.Connection,
        found: BatchChanges,
        at: int | None = None,
        ready: Mapping[RowKey, NewRow] = MappingProxyType({}),
    ) -> int:
        """Merge what was gathered, shown as it reads at a time, in seconds since the epoch.

        `ready` are rows that `prepare` made for that time. Gives how many rows' states changed (those that a deletion
        removed count too).
        """
        changed = self._erase(connection, found, at)
        keys = {*found.deletions, *found.statics, *(key for key, _ in found.rows)}
        heads = self._state.heads(connection, keys)
        partitions = {key: head.deletions for key, head in heads.items()}
        for key, said in found.deletions.items():
            before = partitions.get(key, NOTHING_DELETED)
            after = truncate_deletions(merge_partitions(before, said), self._truncations.erased)
            partitions[key] = after
            if after != before:
                self._state.write_deletions(connection, key, before, after, at)
                changed += self._delete(connection, key, before, after, at)
        changed += self._merge_statics(connection, found, heads, partitions, at)
        if found.rows:
            changed += self._merge_rows(connection, found.rows, partitions, at, ready)
        return changed

    def sweep(self, connection: sa.Connection, at: int) -> int:
        """Show again what has expired by `at`, in seconds since the epoch, and erase what may be; how many rows."""
        changed = self._erase(connection, BatchChanges(), at)
        for stored in self._state.due(connection, at):
            states = {row_key: one.state for row_key, one in stored.items()}
            self._state.write(connection, states, at)
            self._rows.update(connection, {key: state for key, state in states.items() if key[1] != STATIC}, at)
            if self._statics is not None:
                statics = {key: state for key, state in states.items() if key[1] == STATIC}
                self._statics.update(connection, statics, at)
            changed += len(states)
        return changed

    def purge(self, connection: sa.Connection, until: int, at: int, limit: int) -> tuple[int, int | None]:
        """Forget what only deletes, or has expired, and was written and came by `until`; of so many rows at the most.

        Both times in seconds. What is shown stays. Gives how many rows it was, and the largest write time of what
        went, in microseconds: what is as old must not be merged any more.
        """
        gone = forget(self._state, connection, until, at, limit)
        return len(gone), max([written for _, written in gone if written is not None], default=None)

    def _erase(self, connection: sa.Connection, found: BatchChanges, at: int | None) -> int:
        """Note truncations, and erase what they cover for certain by now; how many rows."""
        floor = self._truncations.absorb(connection, found.truncations, at)
        if floor is None:
            return 0
        changed = 0
        for shown in (self._rows, self._statics):
            if shown is not None:
                shown.forget_older(connection, floor.written)
        changed += self._state.forget_older(connection, floor.written)
        for stored in self._state.since(connection, floor.written):
            states = {row_key: merge_state(row, None, floor) for row_key, row in stored.items()}
            touched = {row_key: state for row_key, state in states.items() if stored[row_key].differs(state)}
            self._state.write(connection, touched, at)
            for static, shown in ((False, self._rows), (True, self._statics)):
                if shown is not None:
                    some = {key: state for key, state in touched.items() if (key[1] == STATIC) is static}
                    shown.update(connection, some, at)
            changed += len(touched)
        return changed

    def _covering(self, partitions: Mapping[bytes, PartitionState], row_key: RowKey) -> Deletion | None:
        return covering(partitions.get(row_key[0]), row_key[1], self._truncations.erased)

    def show_again(self, connection: sa.Connection, stale: list[ColumnPlace], at: int | None = None) -> None:
        """Bring rows up to date that have a value in these columns, which the source dropped, or reads otherwise now.

        Of a dropped column they lose the value, which may be their last one.
        """
        for place in stale:
            shown = self._statics if place.kind is ColumnKind.STATIC else self._rows
            if shown is None:
                continue
            for keys in shown.with_value(connection, place):
                known = self._state.rows(connection, keys)
                if not place.live:
                    shown.clear(connection, keys, place)
                shown.update(connection, {key: known[key].state for key in keys if key in known}, at)

    def _delete(
        self, connection: sa.Connection, key: bytes, before: PartitionState, after: PartitionState, at: int | None
    ) -> int:
        """Take a partition's new deletions to its rows. Rows that are older as a whole go without being read."""
        areas = [part for part in after.ranges if part not in before.ranges]
        if after.deletion is not None and after.deletion != before.deletion:
            areas.append(RangeDeletion(b"", None, after.deletion))
        changed = 0
        for area in areas:
            low, high = ROW + area.start, END if area.end is None else ROW + area.end
            self._rows.delete_older(connection, key, low, high, area.deletion.written)
            changed += self._state.delete_older(connection, key, low, high, area.deletion.written)
            for stored in self._state.between(connection, key, low, high):
                states = {row_key: merge_state(row, None, area.deletion) for row_key, row in stored.items()}
                touched = {row: state for row, state in states.items() if stored[row].differs(state)}
                self._state.write(connection, touched, at)
                self._rows.update(connection, touched, at)
                changed += len(touched)
        return changed

    def _merge_statics(
        self,
        connection: sa.Connection,
        found: BatchChanges,
        heads: Mapping[bytes, PartitionHead],
        partitions: Mapping[bytes, PartitionState],
        at: int | None,
    ) -> int:
        deleted = {key for key in found.deletions if key in heads and heads[key].static is not None}
        touched: dict[RowKey, RowState] = {}
        for key in {*found.statics, *deleted}:
            stored = heads[key].static if key in heads else None
            state = merge_state(stored, found.statics.get(key), self._covering(partitions, (key, STATIC)))
            if differs(stored, state):
                touched[key, STATIC] = state
        if touched and self._statics is not None:
            self._state.write(connection, touched, at)
            self._statics.put(connection, {row_key: (state, ()) for row_key, state in touched.items()}, at)
        return len(touched)

    def _merge_rows(
        self,
        connection: sa.Connection,
        rows: Mapping[RowKey, RowChanges],
        partitions: Mapping[bytes, PartitionState],
        at: int | None,
        ready: Mapping[RowKey, NewRow],
    ) -> int:
        """Rows of which nothing is known go in as they are; the others are merged with what is known."""
        keys = sorted(rows)
        known = self._state.encoded(connection, keys)
        self._mostly_new = 2 * len(known) < len(keys)
        new: list[NewRow] = []
        merges: list[RowMerge] = []
        covered = bool(partitions) or self._truncations.erased is not None
        for row_key in keys:
            changes, floor = rows[row_key], self._covering(partitions, row_key) if covered else None
            if (stored := known.get(row_key)) is not None:
                merges.append((row_key, changes, stored, floor))
                continue
            row = ready.get(row_key) if floor is None else None
            if row is None:
                row = self._builder.insert(row_key, changes, floor, at)
            if row is not None:
                new.append(row)
        self._writer.insert(connection, new)
        changed = len(new)
        for some in prefetched(self._updates(part, at) for part in chunks(merges, _WRITTEN_AT_ONCE)):
            self._writer.update(connection, some)
            changed += len(some)
        return changed

    def _updates(self, rows: Sequence[RowMerge], now: int | None) -> list[RowUpdate]:
        return [update for part in chunks(rows, _AT_A_TIME) for update in self._builder.update(part, now)]


@dataclass(frozen=True, slots=True)
class PreparedBatch:
    """Changes of one table merged with each other, and rows made of them that are right if nothing is known of them.

    As they are looked at at `at`, by the definition of `merge`.
    """

    merge: TableMerge
    found: BatchChanges
    at: int
    new: Mapping[RowKey, NewRow]
