"""Change-log sinks behind a real Kafka and a real Spark: what topics have goes out, in order, once where said."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.local import LocalKafka
from tests.integration.feed import Feed
from tests.integration.histories import PLAIN, by_key, follow, history, states
from tests.integration.letters import letters_in
from tests.integration.stream_settings import stream_settings
from tests.unit.spark.sinks.change_log_contract import once, require_order
from tests.unit.spark.sinks.files.stores import local
from tests.unit.spark.sinks.http.endpoint import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """Takes everything."""
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


@pytest.mark.spine
@pytest.mark.promise("change-logs.replay")
def test_topics_go_out_through_every_change_log_sink(
    spark: SparkSession,
    feed: Feed,
    kafka: LocalKafka,
    prefix: str,
    endpoint: Endpoint,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = stream_settings(
        kafka,
        prefix,
        {"checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40},
        {
            "files": {"type": "files", "path": str(tmp_path / "files")},
            "http": {"type": "http", "url": endpoint.url, "batch_records": 4},
            "console": {"type": "console", "format": "json"},
        },
    )
    first, second = history(10), history(20)
    feed.publish(first)
    feed.poison(PLAIN, b"no change at all")
    assert follow(spark, settings, "files")
    feed.publish(second)
    batches = follow(spark, settings, "files")
    assert sum(batch.summary.rows for batch in batches) == len(second)
    stored = local(tmp_path / "files")
    changes = [change for _, change in stored.changes()]
    assert len(changes) == len(first) + len(second)
    assert states(by_key(changes)) == states(by_key([*first, *second]))
    records = stored.records()
    require_order(records)
    assert {record["stream_id"] is not None for record in records} == {True}
    [letter] = letters_in(kafka, prefix)
    assert letter.message == b"no change at all"

    lost = settings.model_copy(
        update={"stream": settings.stream.model_copy(update={"checkpoint": str(tmp_path / "lost")})}
    )
    again = follow(spark, lost, "files")
    assert sum(batch.records for batch in again) == len(first) + len(second) + 1
    assert sum(batch.summary.rows for batch in again) == len(first) + len(second)
    assert [record["offset"] for record in stored.records()] == [record["offset"] for record in records]

    follow(spark, settings, "http")
    assert same(once(endpoint.taken), records)
    require_order(endpoint.taken)
    assert len(letters_in(kafka, prefix)) == 2  # of both sinks
    capsys.readouterr()
    follow(spark, settings, "console")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert same([line for line in lines if "reason" not in line], records)
    require_order(line for line in lines if "reason" not in line)


def same(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether they are the same records, in any order; columns that are null may be left out."""
    return {line(one) for one in found} == {line(one) for one in wanted} and len(found) == len(wanted)


def line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)
