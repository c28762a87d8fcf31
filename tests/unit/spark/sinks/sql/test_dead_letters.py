"""Dead letters of a SQL sink: listed in order, merged again together with their going, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId
from tailrace_spark.job.replay import ReplayCounts, all_letters, replay_letters
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.source.decode import pieces
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.letters_contract import NONE, nowhere
from tests.unit.tables import table

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
LOG = Log(PLAIN)
ENCODER = Encoder(PLAIN, "t")
SCHEMAS = {
    ENCODER.schema_id: SchemaEntry(schema_id=ENCODER.schema_id, topic="t", table=PLAIN, avro=ENCODER.schema_text)
}


def letter(number: int) -> DeadLetter:
    """A change that was not understood when it came; they spread over topics and partitions."""
    value = ENCODER.value(LOG.insert((number,), (), 10, v=f"v{number}"))
    place = RecordId(f"t{number % 2}", number % 3, number, ENCODER.schema_id)
    return DeadLetter(place, "its schema is not published", value)


LETTERS = tuple(letter(number) for number in range(7))
IN_ORDER = sorted(LETTERS, key=lambda one: (one.record_id.topic, one.record_id.partition, one.record_id.offset))


@pytest.fixture
def sink(database: Database) -> Iterator[SqlSink]:
    """One that has set seven records aside."""
    with closing(SqlSink(database.url)) as sink:
        sink.write([Piece((), LETTERS)])
        yield sink


@pytest.mark.promise("sinks.dead-letters")
def test_what_is_refused_again_stays_with_the_new_reason(sink: SqlSink) -> None:
    assert sum(
        replay_letters(sink, partial(pieces, schemas=NONE), nowhere, per_batch=2), ReplayCounts()
    ) == ReplayCounts(again=7)
    reasons = {one.reason for one in all_letters(sink)}
    assert reasons == {f"schema {ENCODER.schema_id.hex()} is not published: a foreign message?"}
    assert [one.message for one in all_letters(sink)] == [one.message for one in IN_ORDER]


@pytest.mark.promise("sinks.dead-letters")
def test_one_without_its_bytes_is_read_from_its_topic(database: Database, sink: SqlSink) -> None:
    known = letter(7)
    sink.write([Piece((), (replace(known, message=b""),))])
    asked = list[RecordId]()

    def fetch(place: RecordId) -> bytes:
        asked.append(place)
        return known.message

    assert sum(
        replay_letters(sink, partial(pieces, schemas=SCHEMAS), fetch, per_batch=2), ReplayCounts()
    ) == ReplayCounts(taken=8)
    assert [one.offset for one in asked] == [7]
    assert database.select("SELECT id, v FROM shop_plain WHERE id = 7") == [(7, "v7")]


@pytest.mark.promise("sinks.dead-letters")
def test_a_letter_stays_until_its_change_is_merged(database: Database, sink: SqlSink) -> None:
    """Whatever ends the process between; MySQL has the row before the letter goes, which changes nothing."""

    def dies(records: object) -> Iterator[Piece]:
        yield from pieces(records, SCHEMAS)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(replay_letters(sink, dies, nowhere, per_batch=2))
    assert len(list(all_letters(sink))) == 7
    if database.engine.dialect.name != "mysql":
        assert "shop_plain" not in database.names()
    assert sum(
        replay_letters(sink, partial(pieces, schemas=SCHEMAS), nowhere, per_batch=2), ReplayCounts()
    ) == ReplayCounts(taken=7)
