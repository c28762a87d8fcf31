"""Merges changes of one table into its state table and its visible tables, in the caller's transaction.

First all changes of a piece are merged with each other, so a row is read, merged and written once however many
changes it has. Then come the deletions, partition by partition, then static rows, then rows. What merging does not
change is not written.

Of rows the database tells which are stored. The others are inserted as they are, and can be built ahead. Those that
are stored are merged here (`merge.row`), the next ones while the database writes some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final

import sqlalchemy as sa

from tailrace_common.sections.template import CLUSTERING, KEY
from tailrace_schemas.change import Deletion
from tailrace_schemas.table import ColumnKind
from tailrace_spark.batch.pieces import prefetched
from tailrace_spark.merge.batch_changes import BatchChanges, RowChanges
from tailrace_spark.merge.condition import RowFilters
from tailrace_spark.merge.row import ShownRows, covering, differs, merge_state
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
from tailrace_spark.sinks.sql.row_builder import NewRow, Renderer, RowBuilder, RowMerge, RowUpdate, new_rows
from tailrace_spark.sinks.state_store.bulk import TEMPORARY, insert, overwrite, stage
from tailrace_spark.sinks.state_store.state_table import StateTable, chunks, forget, pages
from tailrace_spark.sinks.state_store.tables import POSTGRESQL
from tailrace_spark.sinks.table_faults import shown_in_sink

_AT_A_TIME: Final = 100  # rows: so often another thread gets its turn, which compiled code does not give by itself
_WRITTEN_AT_ONCE: Final = 4_000
_MOST_COLUMNS: Final = 1_600  # of a table in PostgreSQL


class VisibleTable:
    """Puts rows of one of both tables, and takes them away."""

    def __init__(
        self, tables: LayoutTables, dialect: str, *, static: bool, shown_rows: ShownRows | None = None
    ) -> None:
        """With `static`, the layout must have a table for static columns. Rows outside `shown_rows` are not in it."""
        sql_table = tables.static if static else tables.rows
        if sql_table is None:
            raise ValueError(f"{tables.layout.name} has no static columns")
        table, layout = tables.layout.definition, tables.layout
        self.table = sql_table
        self._static = static
        self._dialect = dialect
        columns = layout.of_kind(ColumnKind.STATIC if static else ColumnKind.REGULAR)
        names = [value.source for value in columns]
        self.renderer = Renderer(table, names, dialect, static=static, shown_rows=shown_rows)
        clustering = [] if static else layout.of_kind(ColumnKind.CLUSTERING)
        keys = [key.stored for key in (*layout.of_kind(ColumnKind.PARTITION_KEY), *clustering)]
        self._key_columns = [sql_table.c[KEY]] if static else [sql_table.c[KEY], sql_table.c[CLUSTERING]]
        named = sa.and_(*[column == sa.bindparam("b_" + column.name) for column in self._key_columns])
        self._delete = sql_table.delete().where(named)
        stored = [value.stored for value in columns]
        self._update = sql_table.update().where(named).values({name: sa.bindparam(name) for name in stored})
        self.names: tuple[str, ...] = (*[column.name for column in self._key_columns], *keys, *stored)
        """The columns of a whole row, in order."""
        self.columns: tuple[str, ...] = tuple(stored)
        """Those that are no keys."""
        self._state = tables.state

    def row(self, row_key: RowKey, clustering: Clustering, values: Sequence[object]) -> tuple[object, ...]:
        """A whole row, under `names`."""
        head = (row_key[0],) if self._static else row_key
        return (*head, *self.renderer.keys(row_key[0], clustering), *values)

    def put(
        self, connection: sa.Connection, rows: Mapping[RowKey, tuple[RowState, Clustering]], now: int | None
    ) -> None:
        """Show these rows as their states say, whether they were there or not."""
        visible: list[tuple[object, ...]] = []
        hidden: list[RowKey] = []
        for row_key, (state, clustering) in rows.items():
            values = self.renderer.values(state, now)
            if values is None:
                hidden.append(row_key)
            else:
                visible.append(self.row(row_key, clustering, values))
        self.remove(connection, hidden)
        overwrite(connection, self.table, self.names, visible)

    def update(self, connection: sa.Connection, rows: Mapping[RowKey, RowState], now: int | None) -> None:
        """Show these rows as their states say, where nothing can have made one appear: key columns stay as they are."""
        visible: list[dict[str, object]] = []
        hidden: list[RowKey] = []
        stored = self.columns
        for row_key, state in rows.items():
            values = self.renderer.values(state, now)
            if values is None:
                hidden.append(row_key)
            else:
                visible.append({**self._bound(row_key), **dict(zip(stored, values, strict=True))})
        self.remove(connection, hidden)
        if visible and stored:
            connection.execute(self._update, visible)

    def delete_older(self, connection: sa.Connection, key: bytes, low: bytes, high: bytes, written: int) -> None:
        """Take away rows of an area that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        newer = sa.exists().where(s.key == c[KEY], s.clustering == c[CLUSTERING], s.newest >= written)
        area = sa.and_(c[KEY] == key, c[CLUSTERING] >= low, c[CLUSTERING] < high)
        connection.execute(self.table.delete().where(area, ~newer))

    def forget_older(self, connection: sa.Connection, written: int) -> None:
        """Take away all rows that have nothing as new as `written`."""
        c, s = self.table.c, self._state.c
        same_row = s.clustering == (STATIC if self._static else c[CLUSTERING])
        newer = sa.exists().where(s.key == c[KEY], same_row, s.newest >= written)
        connection.execute(self.table.delete().where(~newer))

    def forget_all(self, connection: sa.Connection) -> None:
        """Take away all rows."""
        connection.execute(self.table.delete())

    def with_value(self, connection: sa.Connection, column: ColumnPlace) -> Iterable[list[RowKey]]:
        """The keys of rows that may have a value in a stored column, in order and in chunks; it may be written between.

        A value that shows as null may be all that keeps a row.
        """
        c = self.table.c
        empty = sa.and_(sa.true(), *[c[name].is_(None) for name in self.columns])
        query = sa.select(*self._key_columns).where(sa.or_(c[column.stored].is_not(None), empty))
        for rows in pages(connection, query, *self._key_columns):
            yield [(row[0], STATIC if self._static else row[1]) for row in rows]

    def clear(self, connection: sa.Connection, keys: Iterable[RowKey], column: ColumnPlace) -> None:
        """Make a stored column empty in these rows."""
        named = [key_column == sa.bindparam("b_" + key_column.name) for key_column in self._key_columns]
        emptied = self.table.update().where(*named).values({column.stored: None})
        connection.execute(emptied, [self._bound(row_key) for row_key in keys])

    def remove(self, connection: sa.Connection, keys: list[RowKey]) -> None:
        """Take these rows away, where they are there."""
        if keys:
            connection.execute(self._delete, [self._bound(row_key) for row_key in keys])

    def _bound(self, row_key: RowKey) -> dict[str, object]:
        return {"b_" + column.name: value for column, value in zip(self._key_columns, row_key, strict=False)}


class RowWriter:
    """Writes in the caller's transaction.

    PostgreSQL gets changed rows once, in a temporary table with the columns of both, and updates each from there. Of
    tables that are too wide for that it gets them as other databases do.
    Where a row's page has room, an update leaves the indexes alone.
    """

    def __init__(self, state: StateTable, visible: VisibleTable) -> None:
        self._state = state
        self._shown = visible
        self._state_names = [column.name for column in state.table.columns]
        columns = [*state.table.columns, *[visible.table.c[name] for name in visible.columns]]
        shape = blake2b(repr([(column.name, str(column.type)) for column in columns]).encode(), digest_size=8)
        self._staged = sa.Table(
            f"tailrace_rows_{shape.hexdigest()}",
            sa.MetaData(),
            *[sa.Column(f"c{index}", column.type) for index, column in enumerate(columns)],
            sa.Column("there", sa.Boolean, nullable=False),
            **TEMPORARY,
        )
        self._nothing: list[object] = [None] * len(visible.columns)
        staged, c, rows = list(self._staged.columns), state.table.c, visible.table.c
        value_columns = [name for name in self._state_names if not c[name].primary_key]
        self._update_state = (
            state.table.update()
            .where(c.key == staged[0], c.clustering == staged[1])
            .values(dict(zip(value_columns, staged[2 : len(c)], strict=True)))
        )
        self._same = sa.and_(rows[KEY] == staged[0], rows[CLUSTERING] == staged[1], self._staged.c.there)
        staged_values = dict(zip(visible.columns, staged[len(c) : -1], strict=True))
        self._update_shown = visible.table.update().where(self._same).values(staged_values) if staged_values else None
        missing = ~sa.exists().where(self._same)
        self._missing = sa.select(staged[0], staged[1]).where(self._staged.c.there, missing)

    def insert(self, connection: sa.Connection, rows: Sequence[NewRow]) -> None:
        """Put rows that are not there. Raises DBAPIError where one is: somebody else put it."""
        if rows:
            insert(connection, self._state.table, self._state_names, [row for row, _ in rows])
            visible = [values for _, values in rows if values is not None]
            insert(connection, self._shown.table, self._shown.names, visible)

    def update(self, connection: sa.Connection, rows: Sequence[RowUpdate]) -> None:
        """Put rows in the place of those that are there, and take away what is left of none, or shows no more."""
        stored = [changed for changed in rows if changed.row is not None]
        if stored:
            if connection.dialect.name == POSTGRESQL and len(self._staged.columns) <= _MOST_COLUMNS:
                self._update_staged(connection, stored)
            else:
                overwrite(connection, self._state.table, self._state_names, [update.row or () for update in stored])
                self._put(connection, [changed for changed in stored if changed.values is not None])
        self._state.remove(connection, [changed.row_key for changed in rows if changed.row is None])
        self._shown.remove(connection, [changed.row_key for changed in rows if changed.values is None])

    def _update_staged(self, connection: sa.Connection, updates: Sequence[RowUpdate]) -> None:
        stage(connection, self._staged, [self._stage(changed) for changed in updates])
        connection.execute(self._update_state)
        visible = sum(changed.values is not None for changed in updates)
        if self._update_shown is not None and _count(connection, self._update_shown) == visible:
            return
        missing = {(key, clustering) for key, clustering in connection.execute(self._missing)}
        self._put(connection, [changed for changed in updates if changed.row_key in missing])

    def _stage(self, changed: RowUpdate) -> tuple[object, ...]:
        values = changed.values
        return (*(changed.row or ()), *(self._nothing if values is None else values), values is not None)

    def _put(self, connection: sa.Connection, rows: Sequence[RowUpdate]) -> None:
        visible_rows = [self._shown.row(update.row_key, update.clustering, update.values or ()) for update in rows]
        overwrite(connection, self._shown.table, self._shown.names, visible_rows)


def _count(connection: sa.Connection, update: sa.Update) -> int:
    result: Any = connection.execute(update, execution_options={"preserve_rowcount": True})
    return int(result.rowcount)


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
