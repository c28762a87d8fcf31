"""A change's trace from a node's log to a database, as an OpenTelemetry receiver gets it from agent and stream; and the
stream's lineage, as a server of OpenLineage gets it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace_common.settings import Settings
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.agents import raw_records
from tests.integration.bench import Bench
from tests.postgres import new_database
from tests.support.openlineage import LineageServer, require_valid
from tests.support.otlp import OtlpReceiver, attributes_of, ids_in, ids_of
from tests.unit.spark.sinks.contract import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 200


@pytest.fixture
def lineage() -> Iterator[LineageServer]:
    """A server of the test's own."""
    with LineageServer() as server:
        yield server


@pytest.mark.parametrize("execution", ["driver", "executors"])
def test_a_change_is_followed_from_the_log_to_the_sink(
    spark: SparkSession, bench: Bench, receiver: OtlpReceiver, lineage: LineageServer, tmp_path: Path, execution: str
) -> None:
    keyspace, topic = bench.keyspace, bench.topic()
    traces = {"endpoint": receiver.endpoint, "sample_ratio": 1.0}
    bench.create()
    with bench.agent(sections={"traces": traces}) as agent:
        agent.until_ready()
        for key in range(ROWS):
            bench.run(f"INSERT INTO #.t (k, v) VALUES ({key}, 'v')")
        agent.until(lambda: agent.count("changes") >= ROWS)
        agent.until_covered()
        assert agent.stop() == 0, agent.words()
    assert bench.key_counts() == Counter(range(ROWS))
    spans = {ids_of(span): span for span in receiver.named("tailrace.publish")}
    headers = [record.headers() or [] for record in raw_records(bench.kafka, topic) if record.value() is not None]
    counts = Counter(ids_in(value) for [(_, value)] in headers)
    sent = {ids: attributes_of(span)["messaging.batch.message_count"] for ids, span in spans.items()}
    assert {ids: sent[ids] for ids in counts} == counts
    assert all(span.status.code == 0 for span in spans.values())

    url = new_database()
    own = {"topics": re.escape(topic), "checkpoint": str(tmp_path / "checkpoint")}
    stream = {"snapshot": "never", "execution": execution, **own}
    followed = Settings.model_validate(
        {
            "kafka": bench.config,
            "topics": {"prefix": bench.prefix, "partitions": 3},
            "stream": stream,
            "traces": traces,
            "sink": {"copy": {"type": "sql", "url": url}},
            "lineage": {"transport": "http", "url": lineage.url, "cassandra": "c1:9042"},
        }
    )
    with closing(SqlSink(url)) as sink:
        metrics = StreamMetrics(SinkInfo("", "", "a database", ""))
        Stream(spark, followed, sink, name=f"traced-{execution}", metrics=metrics).run(availableNow=True)
    with closing(Database(url)) as database:
        assert Counter(database.select(f"SELECT k FROM {keyspace}_t")) == Counter((key,) for key in range(ROWS))

    batches, changes = receiver.named("tailrace.batch"), receiver.named("tailrace.batch.changes")
    assert {attributes_of(batch)["tailrace.execution"] for batch in batches} == {execution}
    links = {(link.trace_id.hex(), link.span_id.hex()) for batch in batches for link in batch.links}
    followed_on = {(span.trace_id.hex(), span.parent_span_id.hex()) for span in changes}
    assert followed_on == links
    assert links <= set(counts)
    assert len(links) >= min(len(counts), 128)
    assert {service for service, _ in receiver.spans} == {"tailrace-agent", "tailrace-stream"}

    for event in lineage.events:
        require_valid(event)
    first, *_, last = lineage.events
    assert (first["eventType"], last["eventType"]) == ("START", "COMPLETE")
    assert [(data["namespace"], data["name"]) for data in last["inputs"]] == [
        (f"kafka://{bench.kafka.bootstrap}", topic),
        ("cassandra://c1:9042", f"{keyspace}.t"),
    ]
    assert [data["name"].rpartition(".")[2] for data in last["outputs"]] == [f"{keyspace}_t"]
    read = [event["inputs"][0]["inputFacets"]["inputStatistics"] for event in lineage.events if event["inputs"]]
    assert sum(statistics["rowCount"] for statistics in read) == ROWS
