"""From Cassandra through Kafka and Spark into databases: every row there stands beside its newest change's stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from cassandra.cluster import Session

from tailrace.local import LocalCassandra, LocalKafka
from tailrace.publish.kafka import KafkaLog
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import Proposal, encode_proposal
from tailrace_schemas.streams import build_generation, stream_for
from tailrace_schemas.tokens import token
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for, start_here
from tests.integration.stream_settings import stream_settings
from tests.postgres import new_database
from tests.unit.spark.sinks.contract import Database, databases

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

YEAR_2100 = 4_102_444_800_000
"""Milliseconds: a generation of then can still be announced, and USING TIMESTAMP writes into it today."""
LATER = YEAR_2100 * 1000 + 5
PARTITIONS = 24


@pytest.fixture
def generations(kafka: LocalKafka, prefix: str) -> Iterator[GenerationReader]:
    """What an agent announced."""
    topic = internal_topic(prefix, Internal.GENERATIONS)
    with closing(GenerationReader.open({"bootstrap.servers": kafka.bootstrap}, topic)) as reader:
        yield reader


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Database]]:
    """A SQLite file and a PostgreSQL database, both new."""
    with databases([f"sqlite:///{tmp_path / 'sink.db'}", new_database()]) as opened:
        yield opened


def write(session: Session, keyspace: str) -> int:
    """Rows whose newest change is of today, of 2100, of long ago; and deletions. How many changes that is."""
    session.execute(
        f"CREATE TABLE {keyspace}.t (p int, c int, s text STATIC, v text, l list<int>, PRIMARY KEY (p, c)) "
        "WITH cdc = true"
    )
    written = 0
    for p in range(PARTITIONS):
        statements = [
            f"UPDATE {keyspace}.t SET s = 'static' WHERE p = {p}",
            *[f"INSERT INTO {keyspace}.t (p, c, v, l) VALUES ({p}, {c}, 'today', [1, 2])" for c in range(5)],
            f"UPDATE {keyspace}.t USING TIMESTAMP 7 SET v = 'long ago' WHERE p = {p} AND c = 0",
            f"UPDATE {keyspace}.t USING TIMESTAMP 8 SET v = 'long ago alone' WHERE p = {p} AND c = 9",
            f"UPDATE {keyspace}.t USING TIMESTAMP {LATER} SET v = 'of 2100' WHERE p = {p} AND c = 1",
            f"UPDATE {keyspace}.t SET l = l + [3] WHERE p = {p} AND c = 1",
            f"DELETE FROM {keyspace}.t WHERE p = {p} AND c = 2",
            f"DELETE FROM {keyspace}.t WHERE p = {p} AND c >= 3 AND c < 4",
        ]
        if p % 4 == 0:
            statements.append(f"DELETE FROM {keyspace}.t WHERE p = {p}")
        for statement in statements:
            session.execute(statement)
        written += len(statements)
    return written


def announce_later(kafka: LocalKafka, prefix: str, generations: GenerationReader) -> None:
    """The generation of 2100: the same ring, other stream ids."""
    [first] = generations.refresh()
    ring = first.unpack().ring
    later = Proposal(
        uuid=uuid4(),
        predecessor=first.timestamp,
        ring=ring,
        generation=build_generation(ring, 3, timestamp=YEAR_2100, seed=2100),
    )
    log = KafkaLog({"bootstrap.servers": kafka.bootstrap}, internal_topic(prefix, Internal.GENERATIONS))
    for key, value in encode_proposal(later):
        log.append(key, value)
    assert [one.timestamp for one in generations.refresh()] == [first.timestamp, YEAR_2100]


def looked_up(generations: GenerationReader, key: bytes, written: int) -> tuple[int, bytes]:
    """The scalar look-up, by token and write time: no column, no numpy, no Spark."""
    published, _ = generations.operating(written)
    generation = published.unpack().generation
    return generation.timestamp, stream_for(generation, token(key)).value


@pytest.mark.spine
@pytest.mark.promise("stream.generation-of-write-time")
def test_every_row_has_its_stream_id(
    spark: SparkSession,
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    prefix: str,
    keyspace_name: str,
    generations: GenerationReader,
    stores: list[Database],
    tmp_path: Path,
) -> None:
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        with AgentProcess(tmp_path, settings_for(cassandra, kafka, prefix, keyspace_name)) as agent:
            agent.until_ready().until_covered()
            announce_later(kafka, prefix, generations)
            written = write(session, keyspace_name)
            agent.until(lambda: agent.count("changes") >= written)
            assert agent.stop() == 0, agent.words()
    for database in stores:
        sink, checkpoint = SqlSink(database.url), str(tmp_path / database.dialect)
        settings = stream_settings(kafka, prefix, {"checkpoint": checkpoint, "max_offsets_per_trigger": 100})
        with closing(sink):
            Stream(spark, settings, sink).run(availableNow=True)
        check(database, f"{keyspace_name}_t", generations)


def check(database: Database, name: str, generations: GenerationReader) -> None:
    """Every row, static row and deletion against the look-up; each kind is there, and each generation."""
    state = f"SELECT s.key, s.newest, s.generation, s.stream_id FROM {name}__state s"
    rows = database.select(f"{state} JOIN {name}__rows r ON r.__key = s.key AND r.__clustering = s.clustering")
    assert len(rows) == len(database.select(f"SELECT p, c FROM {name} WHERE c IS NOT NULL"))
    assert {(p, c) for p, c in database.select(f"SELECT p, c FROM {name}")} == {
        (p, c) for p in range(PARTITIONS) for c in (0, 1, 4, 9) if p % 4 or c == 1
    }
    everything = database.select(state)
    kinds = database.select(f"SELECT s.clustering FROM {name}__state s")
    assert {bytes(kind)[:1] for (kind,) in kinds} == {b"\x00", b"\x01", b"\x02", b"\x03"}
    for found in (rows, everything):
        for key, newest, generation, stream_id in found:
            assert (generation, stream_id) == looked_up(generations, key, newest)
        assert len({generation for _, _, generation, _ in found}) == 2
    assert len({stream_id for _, _, _, stream_id in rows}) > 4
