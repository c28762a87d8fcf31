"""What a stream on a real Kafka and Spark tells a server of OpenLineage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import MicroBatch
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import BatchWrite, Needed, nothing_needed
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.support.openlineage import Event, LineageServer, require_valid
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 5_000_000
ORDERS = table({"id": "text"}, {"line": "int"}, {}, {"hidden": "text", "amount": "decimal"}, keyspace="shop", name="o")
NOTES = table({"id": "text"}, keyspace="shop", name="notes")


@pytest.fixture
def server() -> Iterator[LineageServer]:
    """A server of the test's own."""
    with LineageServer() as server:
        yield server


@pytest.fixture
def settings(kafka: LocalKafka, prefix: str, server: LineageServer, tmp_path: Path) -> Settings:
    """A stream into a file of SQLite that tells its lineage."""
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {
                "snapshot": "never",
                "checkpoint": str(tmp_path / "checkpoint"),
                "columns": {"shop.o.hidden": "drop"},
            },
            "sink": {"copy": {"type": "sql", "url": f"sqlite:///{tmp_path}/copy.db"}},
            "lineage": {"transport": "http", "url": server.url, "cassandra": "c1:9042"},
        }
    )


class BrokenSink(SqlSink):
    """Refuses every batch for good."""

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:  # noqa: ARG002
        """Refuse it."""
        raise RuntimeError("this sink is broken")


def run(spark: SparkSession, settings: Settings, kind: type[SqlSink] = SqlSink) -> None:
    """Stream what is there, then end."""
    with closing(kind(settings.stream_sink()[1].identity)) as sink:
        Stream(spark, settings, sink).run(availableNow=True)


def columns(dataset: dict[str, Any]) -> list[str]:
    return [field["name"] for field in dataset["facets"]["schema"]["fields"]]


def records(events: Iterable[Event], topic: str) -> int:
    """How many records of a topic the events count."""
    inputs = [dataset for event in events for dataset in event["inputs"] if dataset["name"] == topic]
    return sum(dataset["inputFacets"]["inputStatistics"]["rowCount"] for dataset in inputs)


def test_a_stream_tells_what_it_reads_and_where_it_writes(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, settings: Settings, server: LineageServer, tmp_path: Path
) -> None:
    orders, notes = Log(ORDERS), Log(NOTES)
    feed.publish([orders.insert((str(number),), (1,), WRITTEN, amount="1", hidden="x") for number in range(5)])
    feed.publish([notes.insert(("a",), (), WRITTEN)])
    run(spark, settings)
    first = list(server.events)
    for event in first:
        require_valid(event)
    assert first[0]["eventType"] == "START"
    assert first[-1]["eventType"] == "COMPLETE"
    assert (records(first, feed.topic(ORDERS)), records(first, feed.topic(NOTES))) == (5, 1)
    last = first[-1]
    assert [(data["namespace"], data["name"]) for data in last["inputs"]] == [
        (f"kafka://{kafka.bootstrap}", feed.topic(NOTES)),
        ("cassandra://c1:9042", "shop.notes"),
        (f"kafka://{kafka.bootstrap}", feed.topic(ORDERS)),
        ("cassandra://c1:9042", "shop.o"),
    ]
    assert columns(last["inputs"][3]) == ["id", "line", "amount", "hidden"]
    assert [(data["namespace"], data["name"]) for data in last["outputs"]] == [
        (f"sqlite://{tmp_path}/copy.db", "shop_notes"),
        (f"sqlite://{tmp_path}/copy.db", "shop_o"),
    ]
    assert columns(last["outputs"][1]) == ["id", "line", "amount"]  # `hidden` is dropped on the way

    feed.publish([orders.insert(("a",), (1,), WRITTEN, amount="1")])
    with pytest.raises(Exception, match="this sink is broken"):
        run(spark, settings, BrokenSink)
    second = server.events[len(first) :]
    for event in second:
        require_valid(event)
    assert [event["eventType"] for event in second] == ["START", "FAIL"]
    assert "this sink is broken" in second[-1]["run"]["facets"]["errorMessage"]["message"]
    assert second[0]["run"]["runId"] != first[0]["run"]["runId"]
    assert second[0]["job"]["name"] == first[0]["job"]["name"] == f"{settings.topics.prefix}.copy"
