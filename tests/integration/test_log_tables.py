"""Log tables as users of ScyllaDB's CDC know them: a live node, an agent, Kafka, the stream, and SELECTs in CQL."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from cassandra.cluster import Session

from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.pipeline import Progress, Stream
from tailrace_spark.sinks.choice import open_sink
from tests.integration.agents import AgentProcess, cql, create_keyspace, settings_for, start_here
from tests.integration.guide import EXAMPLES, Example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def session(cassandra: LocalCassandra) -> Iterator[Session]:
    """The node, in CQL."""
    with cql(cassandra) as session:
        yield session


def settings_of(cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, place: Path, most: int = 5_000) -> Settings:
    """A stream into log tables beside the tables that they are of."""
    sink = {"type": "log-tables", "contact_points": [cassandra.address], "port": cassandra.port}
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"checkpoint": str(place / "checkpoint"), "max_offsets_per_trigger": most},
            "sink": {"log": sink},
        }
    )


def follow(spark: SparkSession, settings: Settings) -> list[Progress]:
    """Stream what is there, then end."""
    batches: list[Progress] = []
    name, chosen = settings.stream_sink()
    sink = open_sink(name, chosen, settings.topics.prefix)
    try:
        Stream(spark, settings, sink, on_batch=batches.append).run(availableNow=True)
    finally:
        sink.close()
    return batches


def shown(rows: Any) -> list[tuple[object, ...]]:
    """Rows of the driver as plain values."""
    return [tuple(_plain(value) for value in row) for row in rows]


def _plain(value: Any) -> object:
    if isinstance(value, tuple):
        return tuple(value)
    if hasattr(value, "items"):
        return dict(value.items())
    return set(value) if type(value).__name__ in ("SortedSet", "set") else value


def micros(time_uuid: UUID) -> int:
    """The write time of a cdc$time, as ScyllaDB's guide computes it."""
    return (time_uuid.time - 0x01B21DD213814000) // 10


def create(session: Session, keyspace: str, example: Example) -> str:
    table = f"{keyspace}.{example.name}"
    session.execute(example.create.format(t=table).replace(" ut,", f" {keyspace}.ut,"))
    return table


def test_the_examples_of_scylladbs_guide_hold(
    spark: SparkSession,
    session: Session,
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    prefix: str,
    keyspace_name: str,
    tmp_path: Path,
) -> None:
    create_keyspace(session, keyspace_name)
    session.execute(f"CREATE TYPE {keyspace_name}.ut (a int, b int, c int)")
    tables = {example.name: create(session, keyspace_name, example) for example in EXAMPLES}
    start_here(session, cassandra, kafka, prefix, keyspace_name)
    with AgentProcess(tmp_path, settings_for(cassandra, kafka, prefix, keyspace_name)) as agent:
        agent.until_ready()
        for example in EXAMPLES:
            for statement in example.statements:
                session.execute(statement.format(t=tables[example.name]))
        session.execute(f"INSERT INTO {keyspace_name}.instant (k) VALUES (2)")
        written = sum(len(example.statements) for example in EXAMPLES)
        agent.until(lambda: agent.count("changes") >= written)
        time.sleep(1)
        assert agent.stop() == 0
    settings = settings_of(cassandra, kafka, prefix, tmp_path, most=7)
    batches = follow(spark, settings)
    print(batches[:3])
    for example in EXAMPLES:
        log = f"{tables[example.name]}_scylla_cdc_log"
        rows = shown(session.execute(example.query.format(log=log)))
        assert rows == example.rows, (example.name, rows)
