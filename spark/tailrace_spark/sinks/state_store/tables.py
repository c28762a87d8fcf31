"""The tables of row state as SQLAlchemy has them, the number of each one's form, and what differs by database.

Stored rows and records of tables have numbers of their own; plain columns, such as a stream's progress, have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tailrace_schemas.formats import require_format
from tailrace_spark.merge.stored_row import ROW

SQLITE: Final = "sqlite"
POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"  # MariaDB too
DIALECTS: Final = (SQLITE, POSTGRESQL, MYSQL)
# InnoDB indexes 3072 bytes; PostgreSQL about 2700, which it checks itself.
KEY_BYTES: Final = sa.LargeBinary().with_variant(mysql.VARBINARY(1024), MYSQL)
CLUSTERING_BYTES: Final = sa.LargeBinary().with_variant(mysql.VARBINARY(2048), MYSQL)
TOPIC: Final = sa.Text().with_variant(sa.String(320), MYSQL)
"""Of a place: Kafka's longest has 249 characters, and the name of a reading or snapshot may stand behind it."""
STATE_BYTES: Final = sa.LargeBinary().with_variant(mysql.LONGBLOB(), MYSQL)
MYSQL_TABLE: Final[dict[str, Any]] = {
    "mysql_engine": "InnoDB",
    "mysql_charset": "utf8mb4",
    "mysql_collate": "utf8mb4_bin",
}
MYSQL_TEXTS: Final = ("LONGTEXT", "LONGBLOB")
CATALOG: Final = sa.MetaData()
"""The tables that are there once in a database, whatever is followed."""
# PostgreSQL writes a new version of an updated row: within its page no index is touched, and the next reader tidies up.
ROOM_FOR_UPDATES: Final[dict[str, Any]] = {"postgresql_with": {"fillfactor": 70}}
FORMAT: Final = 1
"""What this version writes into each table. Where it was killed before it noted that, the next start does."""

FORMATS: Final = sa.Table(
    "tailrace_formats",
    CATALOG,
    sa.Column("name", sa.Text().with_variant(sa.String(64), MYSQL), primary_key=True),
    sa.Column("format", sa.Integer, nullable=False),
    **MYSQL_TABLE,
)


def bytes_literal(value: bytes, dialect: str) -> sa.ColumnElement[bytes]:
    """Bytes that stand in the statement itself, so that PostgreSQL sees that an index's condition holds."""
    return sa.literal_column(f"'\\x{value.hex()}'::bytea" if dialect == POSTGRESQL else f"x'{value.hex()}'")


def state_named(name: str, metadata: sa.MetaData, *columns: sa.Column[Any]) -> sa.Table:
    """NAME__state. `clustering` is one of the reserved values of `state_table`, or a row's own.

    `newest` is the newest write time in `state`, so that older rows are found without reading them. The change that
    wrote it belongs to the stream `stream_id` (16 bytes) of the generation of the timestamp `generation`
    (milliseconds). `next_expiry` is when, in seconds since the epoch, the row reads
    otherwise by expiry alone. `deletes_from` is when, in seconds, the first tombstone in it was written, or cell
    expires, but no earlier than its last change arrived. It is null without any.
    """
    table = sa.Table(
        name + "__state",
        metadata,
        sa.Column("key", KEY_BYTES, primary_key=True),
        sa.Column("clustering", CLUSTERING_BYTES, primary_key=True),
        sa.Column("newest", sa.BigInteger, nullable=False),
        sa.Column("state", STATE_BYTES, nullable=False),
        sa.Column("generation", sa.BigInteger),
        sa.Column("stream_id", KEY_BYTES),
        sa.Column("next_expiry", sa.BigInteger),
        sa.Column("deletes_from", sa.BigInteger),
        *columns,
        sqlite_with_rowid=False,
        **ROOM_FOR_UPDATES,
        **MYSQL_TABLE,
    )
    for suffix, column in (("__by_expiry", table.c.next_expiry), ("__by_purge", table.c.deletes_from)):
        due = column.is_not(None)
        sa.Index(name + suffix, column, postgresql_where=due, sqlite_where=due)
    heads = [table.c.clustering < bytes_literal(ROW, dialect) for dialect in (POSTGRESQL, SQLITE)]
    sa.Index(name + "__heads", table.c.key, postgresql_where=heads[0], sqlite_where=heads[1])
    return table


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
