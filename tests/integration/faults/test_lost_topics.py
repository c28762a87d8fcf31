"""Topics that go under a running stream: that table stops or goes on with the rest, the others go on, all is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import DataLossError, ServiceError
from tailrace_schemas.table import Table
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess
from tests.support.waiting import text_of, until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 5_000_000
LOST, OTHER = (
    table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name=name, table_id=uuid4())
    for name in ("lost", "other")
)


class Ground:
    """Two tables' topics, and a database that follows them."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, prefix: str, folder: Path) -> None:
        self.spark, self.kafka, self.prefix, self.folder = spark, kafka, prefix, folder
        self.feed = Feed(kafka.bootstrap, prefix)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
        self.topic = self.feed.topic(LOST)
        self.url = f"sqlite:///{folder / 'sink.db'}"
        self.database = Database(self.url, sa.create_engine(self.url))
        self.log: str | None = None
        """Where the changes are logged, in place of the database."""
        self.feed.announce()

    def sink(self) -> ReachableSink:
        """One as a new process has it."""
        if self.log is None:
            return SqlSink(self.url)
        return open_sink("log", DeltaSinkSettings(path=self.log), self.prefix)

    def insert(self, which: Table, *ids: int) -> None:
        self.feed.publish([Log(which).insert((number,), (), WRITTEN, v="v") for number in ids])

    def ids(self, which: Table) -> set[int]:
        name = f"shop_{which.name}"
        there = name in self.database.names()
        return {row[0] for row in self.database.select(f"SELECT id FROM {name}")} if there else set()

    def logged(self, which: Table) -> list[int]:
        """The ids of all changes of a table that the log has, in order."""
        found = DeltaTable(f"{self.log}/shop.{which.name}").to_pyarrow_table(columns=["key"])
        return sorted(key["id"] for key in found["key"].to_pylist())

    def settings(self, *, stops: bool) -> Settings:
        own = {"snapshot": "never", "checkpoint": str(self.folder / "checkpoint"), "fail_on_data_loss": stops}
        kafka = {"bootstrap.servers": self.kafka.bootstrap}
        return Settings.model_validate({"kafka": kafka, "topics": {"prefix": self.prefix}, "stream": own})

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(60)
        until(lambda: self.topic not in self.admin.list_topics(timeout=60).topics, f"the end of {self.topic}")

    def create_again(self) -> None:
        self.feed.make_again(LOST)

    def trim(self) -> list[int]:
        """Delete all records that the topic has; by partition, the offset at which it begins then.

        That may be in front of the mark of a transaction which Kafka writes a moment after the commit.
        """
        everything = [TopicPartition(self.topic, number, -1) for number in range(self.feed.options.partitions)]
        deleted = self.admin.delete_records(everything)
        return [deleted[partition].result(60).low_watermark for partition in everything]

    def drain(self, *, stops: bool) -> dict[str, Any]:
        """Stream what is there, then end; the status."""
        with self.running(stops=stops, once=True) as running:
            running.thread.join(240)
            assert not running.thread.is_alive()
        return running.status()

    def running(self, *, stops: bool, once: bool = False) -> Running:
        return Running(self, stops=stops, once=once)


class Running:
    """A stream in a thread of its own. What it raised is raised at the end."""

    def __init__(self, ground: Ground, *, stops: bool, once: bool = False) -> None:
        self._stop, self._sink, self.metrics = threading.Event(), ground.sink(), StreamMetrics()
        stream = Stream(ground.spark, ground.settings(stops=stops), self._sink, stop=self._stop, metrics=self.metrics)
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": "0 seconds"}
        self.error: Exception | None = None

        def run() -> None:
            try:
                stream.run(**trigger)
            except (DataLossError, ServiceError) as error:
                self.error = error

        self.thread = threading.Thread(target=run)

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(json.dumps(self.metrics.status()))
        return status

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self.thread.join(120)
        self._sink.close()
        if self.error is not None and kind is None:
            raise self.error

    def until(self, condition: Callable[[], bool]) -> None:
        until(condition, text_of(condition), 180, over=lambda: not self.thread.is_alive(), state=lambda: self.error)


@pytest.fixture
def ground(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Ground]:
    """Both tables, each with rows that are read."""
    ground = Ground(spark, kafka, prefix, tmp_path)
    ground.insert(LOST, *range(10))
    ground.insert(OTHER, 0)
    yield ground
    ground.feed.close()
    ground.database.engine.dispose()


@pytest.mark.promise("stream.lost-topics")
def test_a_deleted_topic_stops_its_table_alone(ground: Ground, caplog: pytest.LogCaptureFixture) -> None:
    with ground.running(stops=True) as running:
        running.until(lambda: len(ground.ids(LOST)) == 10 and ground.ids(OTHER) == {0})
        ground.delete()
        ground.insert(OTHER, 1)
        running.until(lambda: ground.ids(OTHER) == {0, 1})
        ground.create_again()
        ground.insert(LOST, *range(100, 150))
        ground.insert(OTHER, 2)
        running.until(lambda: ground.ids(OTHER) == {0, 1, 2})
        status = running.status()
    assert ground.ids(LOST) == set(range(10)), "what comes later belongs on what is lost"
    assert [ground.topic in loss["words"] and "was deleted" in loss["words"] for loss in status["losses"]] == [True]
    assert "partition 0 from offset" in status["stopped"][ground.topic]
    [told] = [record.getMessage() for record in caplog.records if ground.topic in record.getMessage()]
    assert "Its table is stopped, all others go on (stream.fail_on_data_loss = true). To read on" in told
    caplog.clear()
    with pytest.raises(DataLossError, match=rf"{ground.topic} was deleted.*stream.fail_on_data_loss = true"):
        ground.drain(stops=True)
    assert ground.topic not in caplog.text, "the error says it"
    ground.drain(stops=False)
    assert ground.ids(LOST) == {*range(10), *range(100, 150)}
    assert ground.drain(stops=True)["stopped"] == {}


@pytest.mark.promise("stream.lost-topics")
def test_a_topic_created_again_is_read_from_its_beginning_where_losses_stop_nothing(ground: Ground) -> None:
    ground.drain(stops=False)
    ground.delete()
    ground.create_again()
    ground.insert(LOST, *range(100, 150))  # more than before: by offsets alone nothing is missing
    ground.insert(OTHER, 1)
    status = ground.drain(stops=False)
    assert ground.ids(LOST) == {*range(10), *range(100, 150)}
    assert ground.ids(OTHER) == {0, 1}
    assert ["was deleted and created again" in loss["words"] for loss in status["losses"]] == [True]


@pytest.mark.promise("sinks.read-again")
def test_a_log_of_changes_has_all_of_a_topic_that_was_created_again(ground: Ground, tmp_path: Path) -> None:
    """Also of one that was missing for a while; and each change once."""
    ground.log = str(tmp_path / "lake")
    ground.drain(stops=False)
    ground.delete()
    ground.insert(OTHER, 1)
    ground.drain(stops=False)
    ground.create_again()
    ground.insert(LOST, *range(100, 105))  # fewer than before
    ground.drain(stops=False)
    ground.delete()
    ground.create_again()
    ground.insert(LOST, *range(200, 220))
    ground.drain(stops=False)
    ground.insert(LOST, 300)
    ground.drain(stops=False)
    assert ground.logged(LOST) == [*range(10), *range(100, 105), *range(200, 220), 300]
    assert ground.logged(OTHER) == [0, 1]


@pytest.mark.promise("stream.lost-topics")
@pytest.mark.parametrize("stops", [True, False])
def test_records_deleted_before_they_were_read_are_told_by_their_offsets(ground: Ground, *, stops: bool) -> None:
    ground.drain(stops=stops)
    before = [ground.feed.end(LOST, number) for number in range(ground.feed.options.partitions)]
    ground.insert(LOST, *range(10, 20))
    after = ground.trim()
    ground.insert(LOST, *range(20, 30))
    ground.insert(OTHER, 1)
    spans = ", ".join(
        f"partition {number} offsets {first} to {end - 1}"
        for number, (first, end) in enumerate(zip(before, after, strict=True))
    )
    if stops:
        with pytest.raises(DataLossError, match=f"not read: {spans}"):
            ground.drain(stops=True)
        assert ground.ids(LOST) == set(range(10))
    else:
        [loss] = ground.drain(stops=False)["losses"]
        assert f"not read: {spans}" in loss["words"]
        assert ground.ids(LOST) == {*range(10), *range(20, 30)}
    assert ground.ids(OTHER) == {0, 1}
    ground.drain(stops=False)
    assert ground.ids(LOST) == {*range(10), *range(20, 30)}


@pytest.mark.promise("stream.end-in-a-line")
@pytest.mark.long
def test_a_java_that_died_is_told_in_a_line(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    feed = Feed(kafka.bootstrap, prefix)
    feed.announce()
    feed.publish([Log(OTHER).insert((1,), (), WRITTEN, v="v")])
    with StreamProcess(tmp_path, kafka, prefix, f"sqlite:///{tmp_path}/sink.db") as stream:
        stream.until(lambda: "1 rows changed" in stream.log.read_text())
        stream.kill(python=False)
        code, words = stream.process.returncode, stream.log.read_text()
    feed.close()
    assert code == 1
    assert "Traceback" not in words
    last = words.partition("1 rows changed")[2].splitlines()[1:]
    assert [line for line in last if "Spark's Java was killed by signal 9" in line] == last, last
