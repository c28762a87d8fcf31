"""The tables of one source table.

The view NAME reads as CQL's SELECT. It shows NAME__rows and, where there are static columns, NAME__static.
NAME__state has what later merges need. It is a view, because the rows' own key is Cassandra's bytes. A zero-length int,
1.0 beside 1.00 or a NaN are distinct keys there and not in SQL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final
from unicodedata import combining, normalize

import sqlalchemy as sa

from tailrace_common.sections.template import CLUSTERING, KEY, claim
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_spark.merge.table_record import TableRecord
from tailrace_spark.sinks.sql.types import SqlType, column_spec
from tailrace_spark.sinks.state_store.tables import (
    CLUSTERING_BYTES,
    KEY_BYTES,
    MYSQL,
    MYSQL_TABLE,
    MYSQL_TEXTS,
    POSTGRESQL,
    ROOM_FOR_UPDATES,
    state_named,
)

# Columns that each table has by itself. PostgreSQL: "System Columns"; InnoDB: its hidden columns.
_OF_THE_SYSTEM: Final[Mapping[str, frozenset[str]]] = {
    POSTGRESQL: frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}),
    MYSQL: frozenset({"db_row_id", "db_trx_id", "db_roll_ptr", "fts_doc_id"}),
}
_IN_NO_NAME: Final = re.compile("\0")
# MySQL: "Schema Object Names". It has no characters beyond U+FFFF in names, and no blanks at their ends.
_IN_NO_NAME_OF_MYSQL: Final = re.compile("[\0\U00010000-\U0010ffff]|\\s(?=\\s*\\Z)")


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """The rule of one database: its dialect, and the most bytes of UTF-8 that a name has there."""

    dialect: str
    limit: int

    def claim(self, name: str, used: Collection[str]) -> str:
        """The name of a source column, the first of NAME, NAME_2, ... that is free; `used` is of `used`.

        A character that the database has in no name is an underscore, and so is an empty name.
        """
        refused = _IN_NO_NAME_OF_MYSQL if self.dialect == MYSQL else _IN_NO_NAME
        return claim(refused.sub("_", name) or "_", self.limit, used, lambda free: frozenset({self._folded(free)}))

    def taken(self, names: Iterable[str]) -> set[str]:
        """What no further column may be called: these names, the sink's own and the database's, as it compares them."""
        return {KEY, CLUSTERING, *_OF_THE_SYSTEM.get(self.dialect, ()), *map(self._folded, names)}

    def _folded(self, name: str) -> str:
        """Equal for names that the database may take for one: MySQL compares by letters without case and accents."""
        if self.dialect != MYSQL:
            return name.lower()
        letters = [letter for letter in normalize("NFD", name) if not combining(letter)]
        return "".join(letter.upper()[0] for letter in letters).lower()  # to MySQL, "ß" is one "s"


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """Where a source column stands: its name in the view, its name and type in the table below.

    `live` is False once the source dropped it: the stored column stays, empty, and leaves the view. `stale` is True
    until rows with a value in it are shown as the newest definition has them.
    """

    kind: ColumnKind
    source: str
    shown: str
    stored: str
    spec: str
    live: bool = True
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """One source table in the database.

    Its truncations and purges are not in its record: tasks of several Kafka partitions write them at once. So they
    have tables of their own, in `state_store`.
    """

    record: TableRecord
    name: str
    columns: tuple[ColumnPlace, ...]

    @property
    def definition(self) -> Table:
        """The newest definition, with all that older ones had beside it."""
        return self.record.definition

    def of_kind(self, *kinds: ColumnKind, live: bool = True) -> list[ColumnPlace]:
        """The places of columns of these kinds; with live = False the dropped ones too."""
        return [column for column in self.columns if column.kind in kinds and (column.live or not live)]


_KEYS = (ColumnKind.PARTITION_KEY, ColumnKind.CLUSTERING)
_INDEXED_COLUMNS: Final = 16
_INDEXED_BYTES: Final = 2400  # of InnoDB's 3072; the rest is for columns of a fixed size


def lay_out(
    record: TableRecord, name: str, dialect: str, limit: int, stored_columns: Sequence[ColumnPlace] = ()
) -> Layout:
    """The layout of a record's definition; with `stored_columns`, those are kept and new columns come last.

    Key columns are matched by position: one that was renamed keeps its stored name, and is shown by its new one.
    """
    names = ColumnNames(dialect, limit)
    table = record.definition
    columns = list(stored_columns)
    source_columns = [*table.key, *table.columns]
    by_source = {(existing.kind, existing.source): i for i, existing in enumerate(columns) if existing.live}
    kept_indexes: set[int] = set()
    added: list[Column] = []
    for position, column in enumerate(source_columns):
        keyed = column.kind in _KEYS
        index = position if keyed and stored_columns else by_source.get((column.kind, column.name))
        if index is not None and (keyed or columns[index].spec == column_spec(column.type, dialect)):
            kept_indexes.add(index)
        else:
            added.append(column)
    columns = [existing if i in kept_indexes else replace(existing, live=False) for i, existing in enumerate(columns)]
    if stored_columns:
        columns[: len(table.key)] = _renamed(columns, table.key, names)
    for column in added:
        name_in_view = names.claim(column.name, names.taken(existing.shown for existing in columns if existing.live))
        stored = names.claim(name_in_view, names.taken(existing.stored for existing in columns))
        columns.append(ColumnPlace(column.kind, column.name, name_in_view, stored, column_spec(column.type, dialect)))
    return Layout(record, name, tuple(columns))


def _renamed(columns: Sequence[ColumnPlace], key: Sequence[Column], names: ColumnNames) -> list[ColumnPlace]:
    """The key columns' places under the names that they have now."""
    keys = [(existing, column.name) for existing, column in zip(columns, key, strict=False)]
    stay = [p for i, p in enumerate(columns) if p.live and (i >= len(key) or p.source == key[i].name)]
    taken_names = names.taken(existing.shown for existing in stay)
    renamed = []
    for existing, name in keys:
        name_in_view = existing.shown if existing.source == name else names.claim(name, taken_names)
        taken_names |= names.taken([name_in_view])
        renamed.append(replace(existing, source=name, shown=name_in_view))
    return renamed


def state_table(layout: Layout, metadata: sa.MetaData) -> sa.Table:
    """NAME__state: see `state_named`."""
    return state_named(layout.name, metadata)


def rows_table(layout: Layout, metadata: sa.MetaData) -> sa.Table:
    """NAME__rows: one row for each that SELECT returns, under the bytes that name it in the state."""
    stored = layout.of_kind(*_KEYS, ColumnKind.REGULAR, live=False)
    return sa.Table(
        layout.name + "__rows",
        metadata,
        sa.Column(KEY, KEY_BYTES, primary_key=True),
        sa.Column(CLUSTERING, CLUSTERING_BYTES, primary_key=True),
        *_columns(stored),
        *_by_key(layout),
        **ROOM_FOR_UPDATES,
        **MYSQL_TABLE,
    )


def _by_key(layout: Layout) -> list[sa.Index]:
    """The index by the source's key, as far as MySQL goes along: no JSON, the beginnings of texts, 16 columns."""
    keys = layout.of_kind(*_KEYS)
    indexed = next((index for index, column in enumerate(keys) if column.spec == "JSON"), len(keys))
    names = [column.stored for column in keys[: min(indexed, _INDEXED_COLUMNS)]]
    long = {column.stored: _INDEXED_BYTES // 4 // len(keys) for column in keys if column.spec.startswith(MYSQL_TEXTS)}
    return [sa.Index(layout.name + "__by_key", *names, mysql_length=long)] if names else []


def static_table(layout: Layout, metadata: sa.MetaData) -> sa.Table | None:
    """NAME__static: one row for each partition with live static columns; None for a table that never had any."""
    stored = layout.of_kind(ColumnKind.STATIC, live=False)
    if not stored:
        return None
    keys = layout.of_kind(ColumnKind.PARTITION_KEY)
    return sa.Table(
        layout.name + "__static",
        metadata,
        sa.Column(KEY, KEY_BYTES, primary_key=True),
        *_columns([*keys, *stored]),
        **MYSQL_TABLE,
    )


def _columns(columns: Sequence[ColumnPlace]) -> list[sa.Column[object]]:
    return [sa.Column(column.stored, SqlType(column.spec)) for column in columns]


def view_query(layout: Layout, rows: sa.Table, static: sa.Table | None) -> sa.SelectBase:
    """What the view NAME selects: the columns in the source's order, a partition's static columns in each of its rows.

    As in CQL, a partition with static columns and no row gives one row without clustering and regular columns.
    """
    keys = layout.of_kind(ColumnKind.PARTITION_KEY)
    clustering = layout.of_kind(ColumnKind.CLUSTERING)
    statics = layout.of_kind(ColumnKind.STATIC)
    regular = layout.of_kind(ColumnKind.REGULAR)
    if static is None or not statics:
        return sa.select(*[rows.c[p.stored].label(p.shown) for p in (*keys, *clustering, *regular)])
    with_rows = sa.select(
        *[rows.c[p.stored].label(p.shown) for p in (*keys, *clustering)],
        *[static.c[p.stored].label(p.shown) for p in statics],
        *[rows.c[p.stored].label(p.shown) for p in regular],
    ).select_from(rows.outerjoin(static, static.c[KEY] == rows.c[KEY]))
    alone = sa.select(
        *[static.c[p.stored].label(p.shown) for p in keys],
        *[_nothing(p).label(p.shown) for p in clustering],
        *[static.c[p.stored].label(p.shown) for p in statics],
        *[_nothing(p).label(p.shown) for p in regular],
    ).where(~sa.exists().where(rows.c[KEY] == static.c[KEY]))
    return with_rows.union_all(alone)


def _nothing(column: ColumnPlace) -> sa.ColumnElement[object]:
    return sa.type_coerce(sa.null(), SqlType(column.spec))


@dataclass(frozen=True, slots=True)
class LayoutTables:
    """The tables of one layout. `static` is None for a table that never had static columns."""

    layout: Layout
    state: sa.Table
    rows: sa.Table
    static: sa.Table | None

    @property
    def all(self) -> list[sa.Table]:
        """Those that there are."""
        return [table for table in (self.state, self.rows, self.static) if table is not None]


def tables_of(layout: Layout) -> LayoutTables:
    """The tables of a layout, as SQLAlchemy describes them."""
    metadata = sa.MetaData()
    return LayoutTables(
        layout, state_table(layout, metadata), rows_table(layout, metadata), static_table(layout, metadata)
    )
