"""`tailrace_formats`: by which rules the tables of Tailrace's own in a database are written, a number for each table.

Stored rows and records of tables have numbers of their own; plain columns, such as a stream's progress, have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tailrace_schemas.formats import require_format
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE, POSTGRESQL
from tailrace_spark.sinks.state_store.tables import CATALOG

FORMAT: Final = 1
"""What this version writes into each table. Where it was killed before it noted that, the next start does."""

FORMATS: Final = sa.Table(
    "tailrace_formats",
    CATALOG,
    sa.Column("name", sa.Text().with_variant(sa.String(64), MYSQL), primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    **MYSQL_TABLE,
)


def make_tables(connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
    """Make these tables where they are missing, and note the format of each.

    Raises SettingsError where one is of another version, before anything is made: MySQL commits before each DDL. Tables
    that are not asked for may have any format: a later version may keep more beside them.
    """
    formats = _formats(connection)
    names = [table.name for table in tables if table is not FORMATS]
    for name in names:
        record = f"the table {name} in the database {connection.engine.url.database}"
        require_format(record, formats.get(name, FORMAT), FORMAT, otherwise=", or give this one another database")
    for table in (FORMATS, *tables):
        table.create(connection, checkfirst=True)
    missing = [{"name": name, "format": FORMAT} for name in names if name not in formats]
    if missing:
        connection.execute(_noted(connection.dialect.name), missing)


def _formats(connection: sa.Connection) -> dict[str, int]:
    if not sa.inspect(connection).has_table(FORMATS.name):
        return {}
    rows = connection.execute(sa.select(FORMATS.c.name, FORMATS.c.format))
    return {row.name: row.format for row in rows}


def _noted(dialect: str) -> Any:
    """Adds rows; those of another stream that began at the same time stay."""
    if dialect == MYSQL:
        return mysql.insert(FORMATS).on_duplicate_key_update(format=FORMATS.c.format)
    insert = postgresql.insert if dialect == POSTGRESQL else sqlite.insert
    return insert(FORMATS).on_conflict_do_nothing()
