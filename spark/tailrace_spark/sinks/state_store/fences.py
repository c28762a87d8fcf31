"""Who may write of a stream: `tailrace_fences` has the token of its newest plan, `tailrace_partitions` each partition.

A task holds both rows while it writes. So a plan waits for the tasks of the one before, and of two attempts at one
Kafka partition the second waits for the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from tailrace_schemas.errors import FencedError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.task_batch import TaskBatch
from tailrace_spark.sinks.state_store.dialects import MYSQL, MYSQL_TABLE, POSTGRESQL
from tailrace_spark.sinks.state_store.tables import CATALOG

_ID: Final = sa.Text().with_variant(sa.String(36), MYSQL)
FENCES: Final = sa.Table(
    "tailrace_fences",
    CATALOG,
    sa.Column("stream", _ID, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)
PARTITIONS: Final = sa.Table(
    "tailrace_partitions",
    CATALOG,
    sa.Column("stream", _ID, primary_key=True),
    sa.Column("topic", sa.Text().with_variant(sa.String(255), MYSQL), primary_key=True),
    sa.Column("partition", sa.Integer, primary_key=True),
    sa.Column("batch", sa.BigInteger, nullable=False),
    sa.Column("next_offset", sa.BigInteger, nullable=False),
    **MYSQL_TABLE,
)


class PlanTokens:
    """Makes the tokens of one process's plans, each newer than the last one of its stream.

    A subscription goes on with another checkpoint when it joins or leaves a shared reading: that is another stream.
    """

    def __init__(self) -> None:
        self._stream: str | None = None
        self._own: tuple[int, ...] = ()

    def next(self, connection: sa.Connection, stream: str) -> int:
        """The token of a new plan, once no task of an earlier one writes any more.

        Raises FencedError where another process has planned since this one's last plan of the stream.
        """
        # Written before it is read: no lock holds a row that is absent, so two first plans would have the same token.
        newer = {"token": FENCES.c.token + 1}
        connection.execute(_upsert(connection.dialect.name, FENCES, {"stream": stream, "token": 1}, newer))
        token: int = connection.execute(sa.select(FENCES.c.token).where(FENCES.c.stream == stream)).scalar_one()
        stored = token - 1
        if stream == self._stream and stored not in self._own:
            raise FencedError(
                f"another process writes the stream {stream} into this database now: this one ends. Run one stream "
                "with a checkpoint at a time"
            )
        # The stored one stays where this transaction fails; whether it did may be unknown.
        self._stream, self._own = stream, (stored, token)
        return token


def _upsert(dialect: str, table: sa.Table, row: Mapping[str, object], changed: Mapping[str, object]) -> sa.Insert:
    """Holds the row until the transaction ends."""
    if dialect == MYSQL:
        return mysql.insert(table).values(**row).on_duplicate_key_update(**changed)
    insert = postgresql.insert if dialect == POSTGRESQL else sqlite.insert
    return insert(table).values(**row).on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)


def begin_partition(connection: sa.Connection, batch: TaskBatch, token: int, partition: KafkaPartition) -> None:
    """Keep every other attempt at the partition, and every newer plan, waiting until the transaction ends.

    Raises FencedError where there is a newer plan.
    """
    reached = {"batch": batch.number, "next_offset": batch.ends[partition]}
    row = {"stream": batch.stream, "topic": partition[0], "partition": partition[1], **reached}
    # One short statement: a task may have little to write beside it.
    connection.execute(_upsert(connection.dialect.name, PARTITIONS, row, reached))
    query = sa.select(FENCES.c.token).where(FENCES.c.stream == batch.stream).with_for_update(read=True)
    newest = connection.execute(query).scalar_one_or_none()
    if newest != token:
        name = "{}, partition {}".format(*partition)
        raise FencedError(f"{name}: batch {batch.number} has a newer attempt; this one ends")
