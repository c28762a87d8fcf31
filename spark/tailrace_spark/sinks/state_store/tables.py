"""The tables of row state, as SQLAlchemy has them."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa

from tailrace_spark.merge.state_keys import ROW
from tailrace_spark.sinks.state_store.dialects import (
    CLUSTERING_BYTES,
    KEY_BYTES,
    MYSQL_TABLE,
    POSTGRESQL,
    SQLITE,
    STATE_BYTES,
    bytes_literal,
)

CATALOG: Final = sa.MetaData()
"""The tables that are there once in a database, whatever is followed."""
# PostgreSQL writes a new version of an updated row: within its page no index is touched, and the next reader tidies up.
ROOM_FOR_UPDATES: Final[dict[str, Any]] = {"postgresql_with": {"fillfactor": 70}}


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
