"""`tailrace_dead_letters`: the records that a SQL sink set aside, each under its place in Kafka."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from tailrace_spark.batch.dead_letters import log_put
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.sql.catalog import DEAD_LETTERS
from tailrace_spark.sinks.state_store.bulk import overwrite


class SqlDeadLetters:
    """A DeadLetterStore in the table of that name: what it does is done by the transaction of its connection.

    Raises what SQLAlchemy raises; the sink makes a ServiceError of that.
    """

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """As DeadLetterStore says; the newer one of a record stays."""
        if not letters:
            return
        names = ("topic", "partition", "offset", "schema_id", "reason", "value")
        rows = [
            (*letter.record_id.key, letter.record_id.schema_id.hex(), letter.reason, letter.message or None)
            for letter in letters
        ]
        overwrite(self._connection, DEAD_LETTERS, names, rows)
        log_put(letters, "tailrace_dead_letters")

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        c = DEAD_LETTERS.c
        query = sa.select(c.topic, c.partition, c.offset, c.schema_id, c.reason, c.value)
        if after is not None:
            later_offset = sa.and_(c.topic == after.topic, c.partition == after.partition, c.offset > after.offset)
            later_partition = sa.and_(c.topic == after.topic, c.partition > after.partition)
            query = query.where(sa.or_(c.topic > after.topic, later_partition, later_offset))
        rows = self._connection.execute(query.order_by(c.topic, c.partition, c.offset).limit(limit))
        return [
            DeadLetter(
                RecordId(row.topic, row.partition, row.offset, bytes.fromhex(row.schema_id)),
                row.reason,
                bytes(row.value or b""),
            )
            for row in rows
        ]

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        keys = {letter.record_id.key for letter in letters}
        if not keys:
            return
        c = DEAD_LETTERS.c
        same_record = sa.and_(
            c.topic == sa.bindparam("t"), c.partition == sa.bindparam("p"), c.offset == sa.bindparam("o")
        )
        values = [{"t": topic, "p": partition, "o": offset} for topic, partition, offset in sorted(keys)]
        self._connection.execute(DEAD_LETTERS.delete().where(same_record), values)
