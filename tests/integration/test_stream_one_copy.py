"""`stream.one_copy_seconds`: of the copies that replicas publish one arrives, and nothing else is left out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import tailrace_spark
from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.digest import change_digest
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import Capabilities
from tests.integration.feed import Feed
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import followed
from tests.support.here_sink import HereSink
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="plain")
IN_2099 = 4_070_908_800_000_000
HOUR = 3_600


class Kept(HereSink):
    """A sink that keeps what it was given: ids of rows, and how many records were none."""

    capabilities = Capabilities()

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.letters = 0

    def take(self, pieces: Iterable[Piece]) -> Summary:
        for piece in pieces:
            self.ids += [int.from_bytes(one.change.key or b"") for one in piece.changes]
            self.letters += len(piece.dead_letters)
        return Summary()

    def close(self) -> None:
        """There is nothing to give back."""

    def taken(self) -> tuple[list[int], int]:
        """What came since the last time."""
        found = sorted(self.ids), self.letters
        self.ids, self.letters = [], 0
        return found


def settings_of(kafka: LocalKafka, prefix: str, tmp_path: Path, seconds: float | None) -> Settings:
    return stream_settings(kafka, prefix, {"checkpoint": str(tmp_path / "checkpoint"), "one_copy_seconds": seconds})


def write(number: int, at: int = 5_000_000) -> Change:
    """A row; calls with the same arguments are its copies, each from another place."""
    change = Log(PLAIN).insert((number,), (), at, v="v")
    return replace(change, digest=change_digest(change))


@pytest.fixture
def five_states(spark: SparkSession) -> Iterator[None]:
    """State in more parts than there are tasks that read a batch."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert before is not None
    spark.conf.set("spark.sql.shuffle.partitions", spark.sparkContext.defaultParallelism + 3)
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)


@pytest.mark.usefixtures("five_states")
def test_copies_are_left_out_and_what_is_late_or_far_ahead_is_not(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    settings, sink, metrics = settings_of(kafka, prefix, tmp_path, HOUR), Kept(), StreamMetrics()
    batches: list[Progress] = []

    def follow() -> tuple[list[int], int]:
        batches.extend(followed(spark, settings, sink, metrics=metrics))
        return sink.taken()

    feed.publish([write(1, IN_2099), write(2), write(2), write(3)])
    feed.publish([write(1, IN_2099)])
    assert follow() == ([1, 2, 3], 0)
    # Rows of 1970 behind one of 2099, in a partition that Kafka had two hours ago; and two records that are no changes.
    feed.publish([write(2), write(4), write(5)], at=int((time.time() - 2 * HOUR) * 1000))
    feed.publish([write(1, IN_2099), write(5), write(6)])
    feed.poison(PLAIN, b"no change", b"no change")
    assert follow() == ([4, 5, 6], 2)
    assert sum(batch.records for batch in batches) == 3 + 3 + 2
    assert [batch.tables["shop.plain"].records for batch in batches if batch.records] == [3, 3]
    with pytest.raises(SettingsError, match=r"written with stream\.one_copy_seconds"):
        Stream(spark, settings_of(kafka, prefix, tmp_path, None), sink).start(availableNow=True)


def test_a_copy_that_comes_later_than_that_is_passed_on_again(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    settings, sink = settings_of(kafka, prefix, tmp_path, 0.2), Kept()
    for changes, expected in (([write(1)], [1]), ([write(2)], [2]), ([write(1)], [1])):
        feed.publish(changes)
        Stream(spark, settings, sink).run(availableNow=True)  # each takes longer to start than what copies have
        assert sink.taken() == (expected, 0)


@pytest.mark.promise("stream.windows")
def test_windows_of_write_times_over_one_copy_of_three(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """The recipe of docs/spark.md: changes a minute, at a replication factor of 3, in append mode."""
    settings, second = settings_of(kafka, prefix, tmp_path, None), 1_000_000
    rows = [write(number, (60 + 30 * number) * second) for number in range(5)]  # 60, 90, 120, 150, 180 s
    for _replica in range(3):
        feed.publish(rows)
    feed.poison(PLAIN, b"no change")

    def counted() -> list[tuple[int, int]]:
        one = tailrace_spark.changes(spark, settings, one_copy_watermark="10 minutes")
        minutes = one.groupBy(F.window("event_time", "1 minute"), "keyspace", "table").count()
        writer = minutes.writeStream.format("parquet").option("path", str(tmp_path / "minutes")).outputMode("append")
        writer = writer.option("checkpointLocation", str(tmp_path / "recipe"))
        writer.trigger(availableNow=True).start().awaitTermination()
        found = spark.read.parquet(str(tmp_path / "minutes")).where("`table` = 'plain'").collect()
        return sorted((int(row.window.start.timestamp()) % 3600, row["count"]) for row in found)

    counted()
    feed.publish([*rows[3:], write(9, 3_600 * second)])  # copies that lag, and a change by which the watermark moves
    counted()
    feed.publish([write(10, 3_600 * second)])
    assert counted() == [(60, 2), (120, 2), (180, 1)]


def test_one_watermark_excludes_the_other(kafka: LocalKafka, prefix: str, tmp_path: Path, spark: SparkSession) -> None:
    settings = settings_of(kafka, prefix, tmp_path, None)
    with pytest.raises(SettingsError, match="exclude each other"):
        tailrace_spark.changes(spark, settings, one_copy_seconds=1, one_copy_watermark="1 hour")
