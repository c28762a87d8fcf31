"""`tailrace_dead_letters`: the records that a SQL sink set aside, each under its place in Kafka."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import sqlalchemy as sa

from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.sql.catalog import DEAD_LETTERS
from tailrace_spark.sinks.state_store.bulk import overwrite

log = logging.getLogger("tailrace_spark")


def bury(connection: sa.Connection, letters: Sequence[DeadLetter]) -> None:
    """Keep them; of a place that has one already the newer stays."""
    if not letters:
        return
    names = ("topic", "partition", "offset", "schema_id", "reason", "value")
    rows = [
        (
            one.record_id.topic,
            one.record_id.partition,
            one.record_id.offset,
            one.record_id.schema_id.hex(),
            one.reason,
            one.message or None,
        )
        for one in letters
    ]
    overwrite(connection, DEAD_LETTERS, names, rows)
    log.warning("%d records could not be written (tailrace_dead_letters); first: %s", len(rows), letters[0].reason)


def buried(connection: sa.Connection, after: RecordId | None, most: int) -> Sequence[DeadLetter]:
    """So many at most, by topic, partition and offset, behind a place."""
    c = DEAD_LETTERS.c
    query = sa.select(c.topic, c.partition, c.offset, c.schema_id, c.reason, c.value)
    if after is not None:
        behind = sa.and_(c.topic == after.topic, c.partition == after.partition, c.offset > after.offset)
        later = sa.and_(c.topic == after.topic, c.partition > after.partition)
        query = query.where(sa.or_(c.topic > after.topic, later, behind))
    rows = connection.execute(query.order_by(c.topic, c.partition, c.offset).limit(most))
    return [
        DeadLetter(
            RecordId(row.topic, row.partition, row.offset, bytes.fromhex(row.schema_id)),
            row.reason,
            bytes(row.value or b""),
        )
        for row in rows
    ]


def exhume(connection: sa.Connection, letters: Sequence[DeadLetter], kept: Sequence[DeadLetter]) -> None:
    """Let go of those of the same places as `letters`, but not of those of the same places as `kept`."""
    stay = {(one.record_id.topic, one.record_id.partition, one.record_id.offset) for one in kept}
    places = {(one.record_id.topic, one.record_id.partition, one.record_id.offset) for one in letters} - stay
    if not places:
        return
    c = DEAD_LETTERS.c
    of_place = sa.and_(c.topic == sa.bindparam("t"), c.partition == sa.bindparam("p"), c.offset == sa.bindparam("o"))
    values = [{"t": topic, "p": partition, "o": offset} for topic, partition, offset in sorted(places)]
    connection.execute(DEAD_LETTERS.delete().where(of_place), values)
