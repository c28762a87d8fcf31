"""Change-log sinks behind a real Kafka and a real Spark: what topics have goes out, in order, once where said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs

from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_spark.job.progress import Progress
from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tailrace_spark.sinks.files.settings import FilesSinkSettings
from tailrace_spark.sinks.iceberg.settings import IcebergSinkSettings
from tests import rabbitmq
from tests.integration.feed import Feed
from tests.integration.histories import PLAIN, by_key, follow, history, states
from tests.integration.letters import letters_in
from tests.postgres import new_database
from tests.unit.spark.sinks.change_log_contract import Outside, changes_of, once, require_order
from tests.unit.spark.sinks.delta.stores import DeltaStored
from tests.unit.spark.sinks.files.stores import Stored, local
from tests.unit.spark.sinks.http.endpoint import Endpoint
from tests.unit.spark.sinks.iceberg.stores import IcebergHistory
from tests.unit.spark.sinks.rabbitmq.published import Published

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORES: Mapping[str, Callable[[dict[str, str]], Outside]] = {
    "delta": lambda section: DeltaStored(DeltaSinkSettings.model_validate(section)),
    "files": lambda section: Stored(
        FilesSinkSettings.model_validate(section), fs.LocalFileSystem(), section["path"], local=True
    ),
    "iceberg": lambda section: IcebergHistory(IcebergSinkSettings.model_validate(section)),
}


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    yield feed
    feed.close()


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
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40},
            "sink": {
                "files": {"type": "files", "path": str(tmp_path / "files")},
                "http": {"type": "http", "url": endpoint.url, "batch_records": 4},
                "console": {"type": "console", "format": "json"},
            },
        }
    )
    feed.announce()
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


@pytest.mark.promise("stream.execution")
@pytest.mark.parametrize("name", ["delta", "iceberg", "files"])
def test_tasks_write_what_topics_have(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, name: str
) -> None:
    """Each change once: of several batches, and again by a stream without its checkpoint."""
    section = {"type": name, "path": str(tmp_path / name)}
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {
                "snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40,
                "execution": "executors",
            },
            "sink": {name: section},
        }
    )  # fmt: skip
    stored = _STORES[name](section)
    feed.announce()
    first, second = history(10), history(20)
    feed.publish(first)
    feed.poison(PLAIN, b"no change at all")
    batches = follow(spark, settings, name)
    feed.publish(second)
    batches += follow(spark, settings, name)
    assert {batch.execution for batch in batches} == {"executors"}
    assert sum(batch.summary.rows for batch in batches) == len(first) + len(second)
    lost = settings.stream.model_copy(update={"checkpoint": str(tmp_path / "lost")})
    again = follow(spark, settings.model_copy(update={"stream": lost}), name)
    assert sum(batch.records for batch in again) == len(first) + len(second) + 1
    # Files of the same names are written again, where histories leave out what they have.
    assert sum(batch.summary.rows for batch in again) == (len(first) + len(second) if name == "files" else 0)
    records = stored.records()
    assert len(records) == len(first) + len(second)
    assert states(by_key(list(changes_of(records, PLAIN).values()))) == states(by_key([*first, *second]))
    assert [letter.message for letter in letters_in(kafka, prefix)] == [b"no change at all"]


@dataclass(frozen=True)
class Received:
    """A sink's section, and the records that its readers have had, in the order of each key."""

    section: dict[str, Any]
    records: Callable[[], Sequence[Mapping[str, Any]]]


@pytest.fixture(params=["http", pytest.param("rabbitmq", marks=pytest.mark.long)])
def received(request: pytest.FixtureRequest, endpoint: Endpoint) -> Iterator[Received]:
    """What takes records at least once."""
    if request.param == "http":
        yield Received({"type": "http", "url": endpoint.url, "batch_records": 4}, lambda: list(endpoint.taken))
        return
    if trouble := rabbitmq.missing():
        pytest.skip(trouble)
    with closing(Published(rabbitmq.server(), queues=3)) as store:
        access = {"username": rabbitmq.USER, "password": rabbitmq.PASSWORD, "exchange": store.settings.exchange}
        section = {"type": "rabbitmq", "url": store.server.url, "queues": 3, **access}
        yield Received(section, store.records)


@pytest.mark.promise("stream.execution")
def test_tasks_send_what_topics_have(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, received: Received, tmp_path: Path
) -> None:
    """In order per key; then the driver takes over, and posts what comes from then on."""
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {
                "snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40,
                "execution": "executors",
            },
            "sink": {"sender": received.section},
        }
    )  # fmt: skip
    feed.announce()
    first, second = history(10), history(20)
    feed.publish(first)
    feed.poison(PLAIN, b"no change at all")
    batches = follow(spark, settings, "sender")
    assert {batch.execution for batch in batches} == {"executors"}
    assert sum(batch.summary.dead_letters for batch in batches) == 1
    feed.publish(second)
    by_driver = settings.stream.model_copy(update={"execution": "driver"})
    batches += follow(spark, settings.model_copy(update={"stream": by_driver}), "sender")
    assert batches[-1].execution == "driver"
    assert sum(batch.summary.rows for batch in batches) == len(first) + len(second)
    records = received.records()
    require_order(records)
    changes = list(changes_of(once(records), PLAIN).values())
    assert len(changes) == len(first) + len(second)
    assert states(by_key(changes)) == states(by_key([*first, *second]))
    [letter] = letters_in(kafka, prefix)
    assert letter.message == b"no change at all"


@pytest.mark.promise("stream.execution")
def test_tasks_write_topics_and_the_driver_goes_on(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """Each change once: by tasks, by the driver, and by tasks of a stream that has lost its checkpoint."""
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {
                "snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40,
                "execution": "executors",
            },
            "sink": {
                "topics": {
                    "type": "kafka", "topic": "{prefix}-out.{table}", "kafka": {"bootstrap.servers": kafka.bootstrap}
                }
            },
        }
    )  # fmt: skip
    feed.announce()
    first, second, third = history(10), history(20), history(30)

    def run(**stream: str) -> list[Progress]:
        own = settings.stream.model_copy(update=stream)
        return follow(spark, settings.model_copy(update={"stream": own}), "topics")

    feed.publish(first)
    feed.poison(PLAIN, b"no change at all")
    batches = run()
    feed.publish(second)
    batches += run(execution="driver")
    feed.publish(third)
    batches += run()
    assert [batch.execution for batch in batches].count("driver") == 1
    lost = run(checkpoint=str(tmp_path / "lost"))
    assert sum(batch.records for batch in lost) == len(first) + len(second) + len(third) + 1
    assert sum(batch.summary.rows for batch in lost) == 0
    with TopicReader({"bootstrap.servers": kafka.bootstrap}, f"{prefix}-out.plain", beginning=True) as reader:
        records = [json.loads(record.value or b"") for _, record in reader.read_to_end()]
    assert len(records) == len(first) + len(second) + len(third)
    assert states(by_key(list(changes_of(records, PLAIN).values()))) == states(by_key([*first, *second, *third]))
    assert sum(batch.summary.dead_letters for batch in batches) == 1


@pytest.mark.promise("stream.execution")
@pytest.mark.parametrize("kind", ["kafka", "http"])
def test_tasks_give_changes_their_images(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path, kind: str
) -> None:
    """The same as the driver's, whatever a batch is; what the driver writes in between goes on from them."""

    def section(name: str) -> dict[str, Any]:
        if kind == "kafka":
            out = f"{prefix}-{name}.{{table}}"
            return {"type": "kafka", "topic": out, "kafka": {"bootstrap.servers": kafka.bootstrap}, "images": url}
        return {"type": "http", "url": endpoints[name].url, "images": url}

    url, endpoints = new_database(), {name: Endpoint() for name in ("driver", "tasks")}
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40},
            "sink": {name: section(name) for name in ("driver", "tasks")},
        }
    )

    def run(name: str, execution: str) -> list[Progress]:
        stream = settings.stream.model_copy(update={"execution": execution})
        return follow(spark, settings.model_copy(update={"stream": stream}), name)

    def images(name: str) -> dict[tuple[int, int], Any]:
        if kind == "http":
            records: list[Any] = list(endpoints[name].taken)
        else:
            out = f"{prefix}-{name}.plain"
            with TopicReader({"bootstrap.servers": kafka.bootstrap}, out, beginning=True) as reader:
                records = [json.loads(record.value or b"") for _, record in reader.read_to_end()]
        return {(record["partition"], record["offset"]): record["images"] for record in records}

    feed.announce()
    for begin, execution in ((10, "executors"), (20, "driver"), (30, "executors")):
        feed.publish(history(begin))
        run("driver", "driver")
        batches = run("tasks", execution)
        assert {batch.execution for batch in batches} == {execution}
    made = images("tasks")
    assert len(made) == 3 * len(history(10))
    assert made == images("driver")
    assert all(made.values())
    for endpoint in endpoints.values():
        endpoint.close()


def same(found: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]) -> bool:
    """Whether they are the same records, in any order; columns that are null may be left out."""
    return {line(one) for one in found} == {line(one) for one in wanted} and len(found) == len(wanted)


def line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True)
