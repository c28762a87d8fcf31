"""`transactions` on real services: Spark's stream from Kafka into Kafka, in batches that cut mutations anywhere."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_spark.sinks.registry import sink_of
from tests.integration.feed import Feed
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import followed
from tests.integration.topics import Topics
from tests.unit.spark.sinks.transactions_contract import (
    ROWS,
    Mark,
    marks_of,
    mutation,
    records_of,
    require_together,
    told,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def feed(feed: Feed) -> Feed:
    feed.add(ROWS)
    return feed


def mixed(seed: int, mutations: int = 6) -> list[Change]:
    """Mutations of three hosts, each host's in order, mixed with one another's."""
    random = Random(seed)
    waiting = {
        host: [change for number in range(mutations) for change in mutation(host, number, random.randint(1, 5))]
        for host in "abc"
    }
    changes: list[Change] = []
    while left := [host for host in waiting if waiting[host]]:
        changes.append(waiting[random.choice(left)].pop(0))
    return changes


def settings_of(kafka: LocalKafka, prefix: str, tmp_path: Path, **stream: object) -> Settings:
    section = {"type": "kafka", "topic": f"{prefix}-out.{{table}}", "partitions": 2, "transactions": True}
    own = {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 4, **stream}
    return stream_settings(kafka, prefix, own, {"out": section})


@pytest.mark.promise("transactions.together")
@pytest.mark.parametrize("seed", range(2))
def test_readers_of_kafka_see_mutations_whole_whatever_dies(kafka: LocalKafka, seed: int) -> None:
    random = Random(seed)
    log = records_of(mixed(seed, 3))
    cuts = sorted(random.sample(range(1, len(log)), 4))
    require_together(Topics(kafka), log, cuts, [random.randint(0, 9) for _ in range(4)])


@pytest.mark.promise("transactions.together")
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_a_stream_delivers_mutations_together_and_once(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, execution: str
) -> None:
    """Its batches have four records: most mutations reach over the end of one."""
    changes = mixed(5)
    for change in changes:
        feed.publish([change])
    settings = settings_of(kafka, prefix, tmp_path, execution=execution)
    with closing(sink_of(settings, "out")) as sink:
        batches = followed(spark, settings, sink)
    assert len([batch for batch in batches if batch.records]) > 5
    assert {batch.execution for batch in batches if batch.records} == {execution}
    with TopicReader({"bootstrap.servers": kafka.bootstrap}, f"{prefix}-out.feed", beginning=True) as reader:
        read = sorted(reader.read_to_end(), key=lambda one: (one[0], one[1].offset))
    records = [json.loads(record.value or b"null") for _, record in read]
    marks = dict.fromkeys(marks_of(records_of(changes)).values(), 0)
    for record in records:
        marks[told(record)] += 1
    assert set(marks.values()) == {1}
    at = 0
    while at < len(records):  # one behind the other, as in the mutation
        first = told(records[at])
        run = [told(record) for record in records[at : at + first.count]]
        assert run == [Mark(first.id, index, first.count) for index in range(first.count)]
        at += first.count
