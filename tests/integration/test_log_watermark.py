"""Log tables while they are written: made before the first change, and complete up to their watermark for readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cassandra import ConsistencyLevel, InvalidRequest
from cassandra.cluster import NoHostAvailable, Session

from examples.log_reader.descriptions import Descriptions
from examples.log_reader.limits import Limit, behind_now, watermark
from examples.log_reader.reader import LogRow, ProgressFile, Reader
from tailrace.local import LocalCassandra, LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import sink_of
from tests.integration.agents import AgentProcess, appended, cql, create_keyspace, settings_for, start_here
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import Running
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGES = 29
SECONDS = 120
LATENESS = 2.0
"""Seconds; far more than the node's commitlog_sync_period."""


@dataclass
class World:
    """A table, the agent of its node, and the settings of a stream into its log table."""

    session: Session
    kafka: LocalKafka
    keyspace: str
    topic: str
    settings: Settings
    agent: AgentProcess
    written: int = field(default=0)

    def write(self) -> None:
        """Some changes, which are in Kafka when it returns."""
        before = appended(self.kafka, self.topic)
        for _ in range(CHANGES):
            self.session.execute(f"INSERT INTO {self.keyspace}.t (pk, v) VALUES ({self.written}, 0)")
            self.written += 1
        self.agent.until(lambda: appended(self.kafka, self.topic) >= before + CHANGES)

    def has_log(self) -> bool:
        """Whether the log table can be read: while it is made Cassandra knows it in some places and not in others."""
        try:
            self.session.execute(f"SELECT pk FROM {self.keyspace}.t_scylla_cdc_log")
        except (InvalidRequest, NoHostAvailable):
            return False
        return True

    def columns(self) -> set[str]:
        """The log table's."""
        names = "SELECT column_name FROM system_schema.columns WHERE keyspace_name = %s AND table_name = %s"
        return {name for (name,) in self.session.execute(names, (self.keyspace, "t_scylla_cdc_log"))}


@pytest.fixture
def world(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[World]:
    """All of it, running; nothing is written yet."""
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.t (pk int PRIMARY KEY, v int) WITH cdc = true")
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        own = settings_for(cassandra, kafka, prefix, keyspace_name)
        own = {
            **own,
            "agent": {**own["agent"], "progress_seconds": 0.5},
            "mirror": {"keyspace": f"{keyspace_name}_cdc"},
        }
        settings = stream_settings(
            kafka,
            prefix,
            {"checkpoint": str(tmp_path / "checkpoint"), "trigger_seconds": 0},
            {
                "log": {
                    "type": "log-tables",
                    "contact_points": [cassandra.address],
                    "port": cassandra.port,
                    "lateness_seconds": LATENESS,
                }
            },
        )
        with AgentProcess(tmp_path, own) as agent:
            agent.until(lambda: agent.status().get("gauges", {}).get("mirrored_generations") == 1)
            yield World(session, kafka, keyspace_name, f"{prefix}.{keyspace_name}.t", settings, agent)


@contextmanager
def streaming(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """The stream runs inside, as `tailrace stream` runs it."""
    name, _ = settings.stream_sink()
    stop = threading.Event()
    with closing(sink_of(settings, name)) as sink, Running(Stream(spark, settings, sink, stop=stop), stop):
        yield


@dataclass
class Watcher:
    """A reader of the log table, and the keys of the changes that it was given."""

    world: World
    limit: Limit
    progress: Path
    keys: list[int] = field(default_factory=list)

    def read(self) -> list[int]:
        """Everything up to the limit."""
        world = self.world
        descriptions = Descriptions(world.session, f"{world.keyspace}_cdc")
        log = f"{world.keyspace}.t_scylla_cdc_log"
        reader = Reader(world.session, log, descriptions, ProgressFile(self.progress), self.limit, window=0.5)
        reader.read_all(self._take)
        return self.keys

    def _take(self, write: Sequence[LogRow]) -> None:
        self.keys += [row["pk"] for row in write]


@pytest.mark.promise("log-tables.watermark")
def test_a_restart_of_the_stream_loses_nothing_for_a_reader_of_the_watermark(
    world: World, spark: SparkSession, tmp_path: Path
) -> None:
    """One that reads a fixed time behind now has passed by, as stock clients do when the stream stands still longer."""
    complete = watermark(world.session, world.keyspace, "t_scylla_cdc_log", ConsistencyLevel.LOCAL_ONE)
    watcher = Watcher(world, complete, tmp_path / "watermark.json")
    with streaming(spark, world.settings):
        until(world.has_log, "a log table before the first change", SECONDS)
        world.write()
        until(lambda: len(watcher.read()) >= CHANGES, "all changes in the log table", SECONDS)
    stood_still = complete()
    world.write()
    hasty = Watcher(world, behind_now(-60, time.time), tmp_path / "hasty.json")
    assert sorted(hasty.read()) == list(range(CHANGES))
    assert sorted(watcher.read()) == list(range(CHANGES))
    assert complete() == stood_still
    with streaming(spark, world.settings):
        until(lambda: len(watcher.read()) >= 2 * CHANGES, "all changes in the log table", SECONDS)
    assert sorted(watcher.read()) == list(range(2 * CHANGES))
    assert len(hasty.read()) == CHANGES, f"the other reader has lost {CHANGES} of {CHANGES}"
