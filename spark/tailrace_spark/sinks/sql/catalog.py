"""Which source table is followed by which tables of the database: made, widened and renamed as the source changes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.schema import CreateColumn, CreateIndex

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.table import ColumnKind, Table
from tailrace_spark.merge.stored_row import STATIC
from tailrace_spark.merge.table_record import TableRecord, decode_record, define, encode_record
from tailrace_spark.sinks.protocol import HereOnlyError
from tailrace_spark.sinks.sql.layout import (
    ColumnPlace,
    Layout,
    LayoutTables,
    lay_out,
    tables_of,
)
from tailrace_spark.sinks.sql.settings import LONGEST, closed_name, objects, table_name, wished_name
from tailrace_spark.sinks.sql.views import Views
from tailrace_spark.sinks.state_store.tables import CATALOG, MYSQL, MYSQL_TABLE, make_tables

log = logging.getLogger("tailrace_spark")

_TEXT: Final = sa.Text().with_variant(mysql.LONGTEXT(), MYSQL)
TABLES: Final = sa.Table(
    "tailrace_tables",
    CATALOG,
    sa.Column("table_id", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("definition", _TEXT, nullable=False),
    sa.Column("columns", _TEXT, nullable=False),
    **MYSQL_TABLE,
)

_STATISTICS: Final = sa.table(
    "statistics", *map(sa.column, ("table_schema", "table_name", "index_name")), schema="information_schema"
)
"""MySQL's indexes, each column of each."""

OnDrop = Literal["keep", "clear", "new-table"]
"""What becomes of a source table that was dropped, once one of its name comes: its rows are kept under another name,
they go, or they stay where they are and the new one gets another name."""


class TakenError(SQLAlchemyError):
    """A name that the sink needs is somebody else's, or what it made is there no more."""


class Catalog:
    """Finds and makes the tables of source tables. After a rollback, `forget` what the transaction had made."""

    def __init__(self, dialect: sa.Dialect, template: str, on_drop: OnDrop = "keep", *, alters: bool = True) -> None:
        """Without `alters` what would make or widen a table raises HereOnlyError: in tasks, whose driver does it."""
        self._alters = alters
        self._on_drop = on_drop
        self._dialect = dialect
        self._views = Views(dialect)
        self._template = template
        self._limit = LONGEST[dialect.name]
        self._known: dict[UUID, LayoutTables] = {}
        self._seen: dict[int, Table] = {}

    def create(self, connection: sa.Connection) -> None:
        """Make the catalog's own tables where they are missing. Raises SettingsError for another version's."""
        make_tables(connection, list(CATALOG.tables.values()))

    def forget(self) -> None:
        """Read everything again from the database when it is next needed."""
        self._known.clear()
        self._seen.clear()

    def all(self, connection: sa.Connection) -> list[LayoutTables]:
        """Whatever is followed, in no order."""
        table_ids = connection.execute(sa.select(TABLES.c.table_id)).scalars().all()
        for table_id in map(UUID, table_ids):
            if table_id not in self._known and (tables := self._load(connection, table_id)) is not None:
                self._known[table_id] = tables
        return list(self._known.values())

    def follow(
        self, connection: sa.Connection, table: Table, announced: int = -1
    ) -> tuple[LayoutTables, list[ColumnPlace]]:
        """The tables that follow `table`, made or widened first where needed, and the columns to show again.

        Those are dropped ones, and ones whose user type has other fields now, until `note_shown` says that it is done.
        `announced`: see `Delivered`.
        """
        existing = self._known.get(table.id)
        # A definition that is announced again is the newest once more, and gives the names.
        is_seen = existing is not None and self._seen.get(id(table)) is table
        if existing is not None and is_seen and announced <= existing.layout.record.announced:
            return existing, []
        if existing is None:
            existing = self._load(connection, table.id) or self._make(connection, table, announced)
        tables = self._known[table.id] = self._widen(connection, existing, table, announced)
        self._seen[id(table)] = table
        return tables, [column for column in tables.layout.columns if column.stale]

    def note_shown(self, connection: sa.Connection, tables: LayoutTables) -> LayoutTables:
        """The same tables, of which nothing is to be shown again any more."""
        layout = tables.layout
        layout = replace(layout, columns=tuple([replace(column, stale=False) for column in layout.columns]))
        self._put(connection, layout)
        self._known[layout.definition.id] = tables_of(layout)
        return self._known[layout.definition.id]

    def known(self, table_id: UUID) -> LayoutTables | None:
        """The tables of a source table that was asked for since `forget`."""
        return self._known.get(table_id)

    def _load(self, connection: sa.Connection, table_id: UUID) -> LayoutTables | None:
        row = connection.execute(sa.select(TABLES).where(TABLES.c.table_id == str(table_id))).one_or_none()
        if row is None:
            return None
        tables = tables_of(_layout_of(row))
        if self._alters and self._dialect.name == MYSQL:
            self._complete(connection, tables)
        return tables

    def _complete(self, connection: sa.Connection, tables: LayoutTables) -> None:
        """Make what is missing of a table's objects: MySQL commits before and after each, so some may be.

        But nothing of which the state knows that there were rows in it: somebody took that away, and must be told.
        """
        inspector = sa.inspect(connection)
        existing = set(inspector.get_table_names())
        state = tables.state
        if state.name not in existing and tables.rows.name in existing:
            return  # the state is made first
        for table in tables.all:
            if table.name not in existing and state.name in existing:
                static = state.c.clustering == STATIC
                lost = sa.select(sa.exists().where(static if table is tables.static else ~static))
                if connection.execute(lost).scalar():
                    return
            table.create(connection, checkfirst=True)
            self._add_missing(connection, table)
        self._views.create(connection, tables)

    def _add_missing(self, connection: sa.Connection, table: sa.Table) -> None:
        # Not by reflection: SQLAlchemy reads MySQL's names line by line, and with two backticks where there is one.
        existing = set(connection.execute(sa.select(sa.text("*")).select_from(table).where(sa.false())).keys())
        self._alter(connection, table, [column for column in table.columns if column.name not in existing])
        of_table = _STATISTICS.c.table_schema == sa.func.database(), _STATISTICS.c.table_name == table.name
        indexes = set(connection.execute(sa.select(_STATISTICS.c.index_name).where(*of_table)).scalars())
        for index in table.indexes:
            if index.name not in indexes:
                index.create(connection)

    def _make(self, connection: sa.Connection, table: Table, announced: int) -> LayoutTables:
        """A new source table; one of the same name that was there before keeps its rows under another name."""
        self._require_alters(table)
        layouts = [_layout_of(row) for row in connection.execute(sa.select(TABLES))]
        name = self._wished(table)
        holder = None if self._on_drop == "new-table" else self._holder(layouts, table)
        taken_names = _taken(layout for layout in layouts if layout is not holder)
        taken_over = holder is not None and announced >= holder.record.announced
        if holder is not None:
            if taken_over:
                self._close(connection, holder, taken_names)
            else:
                name = closed_name(name, table.id, self._limit)
                taken_names |= objects(holder.name)
        record = TableRecord(table, announced)
        layout = lay_out(record, table_name(name, self._limit, taken_names), self._dialect.name, self._limit)
        tables = tables_of(layout)
        if self._dialect.name == MYSQL:
            self._expect_free(connection, tables)
        connection.execute(TABLES.insert(), [_row_of(layout)])
        for sql_table in tables.all:
            sql_table.create(connection, checkfirst=False)
        (self._views.take if taken_over else self._views.create)(connection, tables)
        log.info("writing table %s (id %s) to %s", table, table.id, layout.name)
        return tables

    def _require_alters(self, table: Table) -> None:
        if not self._alters:
            raise HereOnlyError(f"{table}: a definition that the driver has not made ready")

    def _holder(self, layouts: Iterable[Layout], table: Table) -> Layout | None:
        """Whose name this table would have: one of the same name in the source."""
        name = self._wished(table)
        return next(
            (layout for layout in layouts if layout.name == name and str(layout.definition) == str(table)), None
        )

    def closed(self, connection: sa.Connection, table: Table, announced: int) -> bool:
        """Whether nothing of this table is wanted: it was dropped, a later one has its name, and its rows went."""
        if self._on_drop != "clear" or table.id in self._known:
            return False
        layouts = [_layout_of(row) for row in connection.execute(sa.select(TABLES))]
        holder = self._holder(layouts, table)
        return holder is not None and holder.definition.id != table.id and announced < holder.record.announced

    def _close(self, connection: sa.Connection, old: Layout, used: set[str]) -> None:
        """Take its name from a table that was dropped; whoever gets it takes its view over, too."""
        self._views.vacate(connection, old.name)
        again = f"{old.definition} was dropped and created again"
        if self._on_drop == "clear":
            self._remove(connection, old)
            log.info("%s: deleted its old rows from %s (on_drop = clear)", again, old.name)
            return
        layout, tables = self._rename(connection, old, closed_name(old.name, old.definition.id, self._limit), used)
        self._views.create_like(connection, tables, old.name)
        log.info("%s: its old rows are kept in %s", again, layout.name)

    def _renamed(self, connection: sa.Connection, tables: LayoutTables, table: Table, announced: int) -> LayoutTables:
        """With the name of its source, where a table has that which was dropped: this one was created again since."""
        layout, name = tables.layout, self._wished(table)
        if layout.name == name or self._on_drop == "new-table":
            return tables
        layouts = [_layout_of(row) for row in connection.execute(sa.select(TABLES))]
        holder = self._holder(layouts, table)
        if holder is None or announced < holder.record.announced:
            return tables
        used = _taken(other for other in layouts if other.definition.id not in (table.id, holder.definition.id))
        self._views.drop(connection, layout.name)
        self._close(connection, holder, used)
        _, renamed = self._rename(connection, layout, name, used)
        self._views.take(connection, renamed)
        return renamed

    def _remove(self, connection: sa.Connection, layout: Layout) -> None:
        """What says whose they are goes last: MySQL commits at each step, and whoever comes next goes on from there."""
        for sql_table in reversed(tables_of(layout).all):
            sql_table.drop(connection, checkfirst=True)
        connection.execute(TABLES.delete().where(TABLES.c.table_id == str(layout.definition.id)))
        self._known.pop(layout.definition.id, None)

    def _expect_free(self, connection: sa.Connection, tables: LayoutTables) -> None:
        """Refuse what others made under these names, before MySQL commits that they are ours."""
        inspector = sa.inspect(connection)
        existing = {*inspector.get_table_names(), *inspector.get_view_names()}
        for name in (tables.layout.name, *[table.name for table in tables.all]):
            if name in existing:
                raise TakenError(f"Table '{name}' already exists")

    def _wished(self, table: Table) -> str:
        return wished_name(self._template, table.keyspace, table.name, self._dialect.name)

    def _widen(self, connection: sa.Connection, existing: LayoutTables, table: Table, announced: int) -> LayoutTables:
        old = existing.layout
        record = define(old.record, table, announced)
        if record == old.record:
            return existing
        self._require_alters(table)
        existing = self._renamed(connection, existing, table, announced)
        old = existing.layout
        layout = lay_out(record, old.name, self._dialect.name, self._limit, old.columns)
        # MySQL commits at the next DDL: who goes on from there has to know what is yet to be shown again.
        tables = tables_of(_with_stale(old, layout))
        self._put(connection, tables.layout)
        if layout.columns != old.columns:
            self._add_columns(connection, tables, existing, layout.columns[len(old.columns) :])
            self._views.replace(connection, tables, old)
        if record.definition == old.definition:
            return tables
        pairs = list(zip(old.columns, layout.columns, strict=False))
        dropped = [now for was, now in pairs if was.live and not now.live]
        renamed = [now for was, now in pairs if was.shown != now.shown]
        added = len(layout.columns) - len(old.columns)
        log.info("%s changed: %d columns added, %d dropped, %d renamed", layout.name, added, len(dropped), len(renamed))
        return tables

    def _add_columns(
        self,
        connection: sa.Connection,
        tables: LayoutTables,
        existing: LayoutTables,
        columns: Sequence[ColumnPlace],
    ) -> None:
        for column in columns:
            table = tables.static if column.kind is ColumnKind.STATIC else tables.rows
            assert table is not None  # noqa: S101 - a static place makes a static table
            if table is tables.static and existing.static is None:
                continue
            self._alter(connection, table, [table.c[column.stored]])
        if tables.static is not None and existing.static is None:
            tables.static.create(connection, checkfirst=False)

    def _alter(self, connection: sa.Connection, table: sa.Table, columns: Sequence[sa.Column[Any]]) -> None:
        for column in columns:
            spec = CreateColumn(column).compile(dialect=self._dialect)
            connection.exec_driver_sql(f"ALTER TABLE {self._quote(table.name)} ADD COLUMN {spec}")

    def _rename(self, connection: sa.Connection, old: Layout, name: str, used: set[str]) -> tuple[Layout, LayoutTables]:
        """Give a table's objects another name, or one like it that is not used; its view is the caller's."""
        layout = replace(old, name=table_name(name, self._limit, used))
        old_tables, new_tables = tables_of(old), tables_of(layout)
        for index in (*old_tables.state.indexes, *old_tables.rows.indexes):
            index.drop(connection)
        for was, now in zip(old_tables.all, new_tables.all, strict=True):
            statement = f"ALTER TABLE {self._quote(was.name)} RENAME TO {self._quote(now.name)}"
            connection.exec_driver_sql(statement)
        for index in (*new_tables.state.indexes, *new_tables.rows.indexes):
            connection.execute(CreateIndex(index))
        self._put(connection, layout)
        self._known.pop(layout.definition.id, None)
        used |= objects(layout.name)
        return layout, new_tables

    def _put(self, connection: sa.Connection, layout: Layout) -> None:
        changed = sa.update(TABLES).where(TABLES.c.table_id == str(layout.definition.id))
        connection.execute(changed.values(**_row_of(layout)))

    def _quote(self, name: str) -> str:
        return self._dialect.identifier_preparer.quote(name)


def _taken(layouts: Iterable[Layout]) -> set[str]:
    """Every name that these layouts and the catalog itself have, in lower case."""
    return set(CATALOG.tables).union(*[objects(layout.name) for layout in layouts])


def _with_stale(old: Layout, new: Layout) -> Layout:
    """The new layout, in which columns are stale whose stored values read otherwise by its definition.

    The column was dropped, perhaps to be added again with no write between, or the fields of its user type are others.
    """
    readings, new_readings = _readings(old.definition), _readings(new.definition)
    names = {name for name, reading in readings.items() if new_readings.get(name) != reading}
    columns = [replace(column, stale=column.stale or (column.kind, column.source) in names) for column in new.columns]
    return replace(new, columns=tuple(columns))


def _readings(table: Table) -> dict[tuple[ColumnKind, str], tuple[CqlType, int | None]]:
    """By kind and name of a column: its type, and when a column of the name was dropped."""
    dropped = {drop.column.name_bytes: drop.dropped_at for drop in table.dropped}
    return {(column.kind, column.name): (column.type, dropped.get(column.name_bytes)) for column in table.columns}


def _row_of(layout: Layout) -> dict[str, str]:
    columns = [[p.kind.value, p.source, p.shown, p.stored, p.spec, p.live, p.stale] for p in layout.columns]
    return {
        "table_id": str(layout.definition.id),
        "name": layout.name,
        "definition": encode_record(layout.record),
        "columns": json.dumps(columns),
    }


def _layout_of(row: sa.Row[tuple[str, ...]]) -> Layout:
    columns = [ColumnPlace(ColumnKind(kind), *rest) for kind, *rest in json.loads(row.columns)]
    record, _ = decode_record(row.definition)
    return Layout(record, row.name, tuple(columns))
