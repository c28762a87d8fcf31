"""Topics that go under a running stream: that table stops or goes on with the rest, the others go on, all is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tailrace.local import LocalKafka
from tailrace_schemas.errors import DataLossError
from tailrace_schemas.table import Table
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.registry import open_sink
from tests.integration.faults.followed import Followed
from tests.integration.feed import Feed
from tests.integration.streams import StreamProcess
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOST, OTHER = (
    table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name=name, table_id=uuid4())
    for name in ("lost", "other")
)


class Ground(Followed):
    """Two tables' topics, of which one gets lost."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, prefix: str, folder: Path) -> None:
        super().__init__(spark, kafka, prefix, folder)
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
        self.topic = self.feed.topic(LOST)
        self.log: str | None = None
        """Where the changes are logged, in place of the database."""

    def sink(self) -> ReachableSink:
        return super().sink() if self.log is None else open_sink("log", DeltaSinkSettings(path=self.log), self.prefix)

    def logged(self, which: Table) -> list[int]:
        """The ids of all changes of a table that the log has, in order."""
        found = DeltaTable(f"{self.log}/shop.{which.name}").to_pyarrow_table(columns=["key"])
        return sorted(key["id"] for key in found["key"].to_pylist())

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


@pytest.fixture
def ground(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Ground]:
    """Both tables, each with rows that are read."""
    ground = Ground(spark, kafka, prefix, tmp_path)
    ground.insert(LOST, *range(10))
    ground.insert(OTHER, 0)
    yield ground
    ground.feed.close()


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
    before = ground.ends(LOST)
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
def test_a_java_that_died_is_told_in_a_line(feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    feed.publish([Log(OTHER).insert((1,), (), 5_000_000, v="v")])
    with StreamProcess(tmp_path, kafka, prefix, f"sqlite:///{tmp_path}/sink.db") as stream:
        stream.until(lambda: "1 rows changed" in stream.log.read_text())
        stream.kill(python=False)
        code, words = stream.process.returncode, stream.log.read_text()
    assert code == 1
    assert "Traceback" not in words
    last = words.partition("1 rows changed")[2].splitlines()[1:]
    assert [line for line in last if "Spark's Java was killed by signal 9" in line] == last, last
