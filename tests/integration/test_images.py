"""Row images behind a real Kafka and a real Spark: in Debezium's events of a stream."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink
from tests.integration.feed import Feed
from tests.integration.stream_settings import stream_settings
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = table({"id": "int"}, regular={"total": "int", "state": "text"}, keyspace="shop", name="items")
LOG = Log(ITEMS)
HISTORY = (
    [
        LOG.insert((1,), (), 10, total=20, state="open"),
        LOG.insert((2,), (), 10, total=5, state="paid"),
        LOG.insert((3,), (), 10, total=5, state="open"),
    ],
    [
        LOG.update((1,), (), 20, state="paid"),
        LOG.update((2,), (), 20, total=15),
        LOG.update((1,), (), 30, total=30),
    ],
    [LOG.update((1,), (), 40, total=1), LOG.delete((2,), (), 40), LOG.delete((3,), (), 40)],
)
"""Of rows: 1 begins to match, changes, and ceases to; 2 begins to, and is deleted; 3 never does."""


@pytest.mark.promise("shaping.row-filter")
@pytest.mark.long
@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_debeziums_events_are_those_of_the_rows_that_match(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, execution: str
) -> None:
    images = f"sqlite:///{tmp_path}/images.db" if execution == "driver" else new_database()
    topic = {"type": "kafka", "topic": "{prefix}-out.{table}", "partitions": 1, "format": "debezium", "images": images}
    where = {"shop.items": "row.total > 10 AND row.state = 'paid'"}
    stream = {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "where": where, "execution": execution}
    settings = stream_settings(kafka, prefix, stream, {"out": topic})
    for history in HISTORY:
        feed.publish(history)
        with closing(open_sink("out", settings.sink["out"], prefix, kafka=settings.kafka.reveal())) as sink:
            batches: list[Progress] = []
            location = settings.sink["out"].location
            Stream(spark, settings, sink, location=location, on_batch=batches.append).run(availableNow=True)
        assert {batch.execution for batch in batches if batch.records} == {execution}
    events: dict[int, list[tuple[str, Any]]] = {}
    with TopicReader(settings.kafka.reveal(), f"{prefix}-out.items", beginning=True) as reader:
        for _, record in sorted(reader.read_to_end(), key=lambda one: one[1].offset):
            if record.value is not None:
                key, value = json.loads(record.key or b"")["payload"], json.loads(record.value)["payload"]
                events.setdefault(key["id"], []).append((value["op"], value["after"]))
    assert events == {
        1: [
            ("c", {"id": 1, "total": 20, "state": "paid"}),
            ("u", {"id": 1, "total": 30, "state": "paid"}),
            ("d", None),
        ],
        2: [("c", {"id": 2, "total": 15, "state": "paid"}), ("d", None)],
    }
