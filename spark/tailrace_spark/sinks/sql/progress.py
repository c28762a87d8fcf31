"""`tailrace_streams`: how far each stream is in a SQL sink's database."""

from __future__ import annotations

from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from tailrace_spark.batch.sink_progress import SinkProgress, offsets_from_json, offsets_to_json
from tailrace_spark.sinks.state_store.bulk import overwrite
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE
from tailrace_spark.sinks.state_store.tables import CATALOG

STREAMS: Final = sa.Table(
    "tailrace_streams",
    CATALOG,
    sa.Column("stream", sa.Text().with_variant(sa.String(36), MYSQL), primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("offsets", sa.Text().with_variant(mysql.LONGTEXT(), MYSQL), nullable=False),
    **MYSQL_TABLE,
)


def read_progress(connection: sa.Connection, stream: str) -> SinkProgress | None:
    """What is kept of a stream; None where nothing is."""
    query = sa.select(STREAMS.c.batch, STREAMS.c.offsets).where(STREAMS.c.stream == stream)
    row = connection.execute(query).one_or_none()
    return None if row is None else SinkProgress(stream, row.batch, offsets_from_json(row.offsets))


def write_progress(connection: sa.Connection, progress: SinkProgress) -> None:
    """Keep it, in place of what was kept of this stream."""
    row = (progress.stream, progress.batch, offsets_to_json(progress.offsets))
    overwrite(connection, STREAMS, ("stream", "batch", "offsets"), [row])
