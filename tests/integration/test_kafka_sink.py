"""The Kafka sink on a real Kafka: the contract of change logs, and what only Kafka has."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import Settings
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.images.store import ImageStore
from tailrace_spark.sinks.kafka.outlet import Config, KafkaOutlet, KafkaTarget, transactions
from tailrace_spark.sinks.protocol import write_here
from tailrace_spark.sinks.registry import open_sink, sink_of
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.sinks.table_faults import TableRefusedError
from tests.held import jar_version
from tests.integration.letters import letters_in
from tests.integration.stream_settings import stream_settings
from tests.integration.topics import Dying, Topics, target_of
from tests.support.letters import MemoryLetters
from tests.unit.spark.cassandra import Log, truncate
from tests.unit.spark.sinks.change_log_contract import PLAIN, ChangeLogContract, Crash, Topic, batches, deliver
from tests.unit.spark.sinks.in_tasks import LogInTasks
from tests.unit.spark.sinks.pages import write_by_page
from tests.unit.tables import table


@pytest.fixture
def topics(kafka: LocalKafka) -> Topics:
    """A sink's, that has written nothing."""
    return Topics(kafka)


@pytest.mark.long
class TestKafka(ChangeLogContract):
    sink = "kafka"

    @pytest.fixture
    def server(self) -> str:
        return f"Kafka {jar_version('kafka', 'kafka-server')}"

    @pytest.fixture
    def stores(self, kafka: LocalKafka) -> Callable[[], Topics]:
        return lambda: Topics(kafka)


@pytest.mark.spine
def test_a_batch_and_how_far_it_is_are_one_transaction(topics: Topics) -> None:
    """Of what comes again, and of a transaction whose end the sink did not see, readers find each change once."""
    first, second, third = batches(Topic())
    assert deliver(topics, *first) == Summary(changes=7, rows=7)
    for step in (4, 13, 14):
        with closing(topics.open(step)) as sink, pytest.raises(Crash):
            write_here(sink, second)
        assert len(topics.records()) == (7 if step < 14 else 7 + 9), f"died after {step} steps"
    assert deliver(topics, *first, *second, *third) == Summary(changes=7 + 9 + 3, rows=3)
    assert [one["op"] for one in topics.records()].count("delete") == 3
    assert len(topics.records()) == 7 + 9 + 3
    assert [one.reason for one in topics.letters.all] == ["no change"]


def test_keys_partitions_and_what_is_too_large(kafka: LocalKafka, prefix: str) -> None:
    settings = stream_settings(
        kafka,
        prefix,
        sinks={
            "out": {
                "type": "kafka",
                "topic": "{prefix}-out.{keyspace}.{table}",
                "partitions": 3,
                "key": "primary",
                "cloudevents": "structured",
                "largest_record": 1024,
            }
        },
    )
    log, topic = Log(PLAIN), Topic()
    truncation = truncate(PLAIN, "a", 5)
    changes = [log.insert((n,), (), 1_760_000_000_000_000 + n, v="a" * (2_000 if n == 4 else 1)) for n in range(6)]
    with closing(sink_of(settings, "out")) as sink:
        sink.reach()
        assert write_here(sink, [topic.piece(*changes, truncation)]) == Summary(changes=7, rows=6, dead_letters=1)
    config = settings.kafka.reveal()
    with TopicReader(config, f"{prefix}-out.shop.plain", beginning=True) as reader:
        found = list(reader.read_to_end())
    assert len(found) == 6
    for partition, record in found:
        event = json.loads(record.value or b"")
        change = event["data"]
        assert partition == change["partition"]
        assert (event["specversion"], event["id"]) == ("1.0", f"{partition}/{change['offset']}")
        assert (event["type"], event["subject"]) == (f"tailrace.change.{change['op']}", "shop.plain")
        assert event["time"].startswith("2025-10-09T08:53:20" if change["op"] == "insert" else "1970-01-01T00:00:00")
        assert json.loads(record.key or b"null") == change["key"]
    [letter] = letters_in(kafka, prefix)
    assert "more than the sink's largest_record, 1024" in letter.reason


ORDERS: Final = table(
    {"country": "text", "id": "int"}, regular={"v": "text"}, keyspace="shop", name="orders", table_id=UUID(int=8)
)


@pytest.mark.parametrize("by_tasks", [False, True])
def test_values_of_keys_name_topics(kafka: LocalKafka, prefix: str, by_tasks: bool) -> None:
    """Each change is in its key's topic once, a truncation in all that are there; there are no more than allowed."""
    section = {"topic": "{prefix}-by.{table}.{key.country}", "partitions": 3, "most_topics": 2}
    settings = Settings.model_validate(
        {"kafka": {"bootstrap.servers": kafka.bootstrap}, "sink": {"out": {"type": "kafka", **section}}}
    )
    config, log, topic = settings.kafka.reveal(), Log(ORDERS), Topic("t.shop.orders")
    truncation = truncate(ORDERS, "a", 5)
    first = topic.piece(*(log.insert((country, 1), (), 1, v="a") for country in ("DE", "a.b", "x")))
    wipe = topic.piece(truncation)
    last = topic.piece(*(log.insert((country, 2), (), 9, v="b") for country in ("DE", "fr", "gb")))
    letters = MemoryLetters()
    with closing(open_sink("out", settings.sink["out"], prefix, kafka=config, letters=letters)) as opened:
        sink = LogInTasks(opened) if by_tasks else opened
        rows = [write_here(sink, [piece]).rows for piece in (first, wipe, last, first)]
    assert rows == [2, 2, 1, 0]
    by_topic: dict[str, list[tuple[str, int]]] = {}
    for name in sorted(TopicMaker(config).partitions()):
        if name.startswith(f"{prefix}-by."):
            with TopicReader(config, name, beginning=True) as reader:
                values = [json.loads(record.value or b"") for _, record in reader.read_to_end()]
            changes = sorted((one["op"], (one["key"] or {}).get("id", 0)) for one in values)
            by_topic[name.removeprefix(f"{prefix}-by.orders.")] = changes
    rest = [("insert", 1), ("truncate", 0)]
    assert by_topic == {"DE": [rest[0], ("insert", 2), rest[1]], "a-2e-b": rest}
    reasons = [letter.reason.partition(",")[0] for letter in letters.all]
    assert reasons == ["its key would make one more topic than the sink's most_topics"] * 3


def test_the_example_of_its_page_writes(topics: Topics, tmp_path: Path) -> None:
    write_by_page("kafka", tmp_path, topics.config)
    changes = list(topics.read("changes.shop.plain"))
    assert [(one["op"], one["key"]) for one in changes] == [("insert", {"id": 1})]


@pytest.mark.promise("debezium.folded")
def test_debeziums_events_end_in_the_rows_of_the_source(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """A process dies at every step of the second batch; each event is there once, tombstones behind deletions."""
    first, second, third = batches(Topic())
    config: Config = {"bootstrap.servers": kafka.bootstrap}
    target = target_of(prefix, partitions=2, format="debezium", images="sqlite://")

    def opened(dies_after: int | None = None) -> ChangeLogSink:
        def dying(config: Config, target: KafkaTarget) -> Any:
            real = transactions(config, target)
            return real if dies_after is None else Dying(real, dies_after)

        images = ImageStore(f"sqlite:///{tmp_path}/images.db", ring_delay=0)
        return ChangeLogSink(KafkaOutlet(config, target, dying), images)

    with closing(opened()) as sink:
        write_here(sink, first)
    for step in (1, 5, 14):
        with closing(opened(step)) as sink, pytest.raises(Crash):
            write_here(sink, second)
    with closing(opened()) as sink:
        write_here(sink, [*second, *third])
    with TopicReader(config, f"{prefix}-out.plain", beginning=True) as reader:
        found = sorted(reader.read_to_end(), key=lambda one: (one[0], one[1].offset))
    rows: dict[bytes, Any] = {}
    where: dict[bytes, int] = {}
    deleted: bytes | None = None
    for partition, record in found:
        assert record.key is not None
        assert where.setdefault(record.key, partition) == partition
        if record.value is None:
            assert deleted == record.key
            deleted = None
            continue
        assert deleted is None
        event = json.loads(record.value)["payload"]
        assert event["before"] == rows.pop(record.key, None)
        if event["after"] is None:
            assert event["op"] == "d"
            deleted = record.key
        else:
            rows[record.key] = event["after"]
    with closing(SqlSink(f"sqlite:///{tmp_path}/wanted.db")) as sql:
        write_here(sql, [Piece(piece.changes) for batch in (first, second, third) for piece in batch])
    engine = sa.create_engine(f"sqlite:///{tmp_path}/wanted.db")
    with engine.connect() as connection:
        wanted = [dict(row) for row in connection.exec_driver_sql("SELECT * FROM shop_plain").mappings()]
    engine.dispose()
    assert sorted(rows.values(), key=repr) == sorted(wanted, key=repr)
    assert sum(record.value is None for _, record in found) == 3


@pytest.mark.promise("subscription.targets")
def test_no_topic_below_the_prefix_of_agents_is_written(kafka: LocalKafka, prefix: str) -> None:
    """Theirs are found in the Kafka itself: its address may be spelled otherwise, and the prefix another cluster's."""
    config: Config = {"bootstrap.servers": kafka.bootstrap.replace("127.0.0.1", "localhost")}
    agents = f"other.{prefix}"
    TopicMaker(config).ensure(internal_topic(agents, Internal.SCHEMAS), 1, {})
    target = target_of(prefix, topic=f"{agents}.{{keyspace}}.{{table}}")
    with closing(KafkaOutlet(config, target)) as outlet:
        for _ in range(2):
            with pytest.raises(TableRefusedError, match=f"is below {agents}, the prefix of agents"):
                outlet.partitions(f"{agents}.shop.orders")
        assert outlet.partitions(f"{prefix}-out.shop.orders") == 1
    assert f"{agents}.shop.orders" not in TopicMaker(config).partitions()


def test_images_that_make_a_record_too_large_are_left_out(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    config: Config = {"bootstrap.servers": kafka.bootstrap}
    target = target_of(prefix, largest_record=2_000)
    log = Log(PLAIN)
    changes = [log.insert((1,), (), 1, v="a" * 800), log.update((1,), (), 2, w=1), log.delete((1,), (), 3)]
    with closing(ChangeLogSink(KafkaOutlet(config, target), ImageStore(f"sqlite:///{tmp_path}/i.db"))) as sink:
        assert write_here(sink, [Topic().piece(*changes)]) == Summary(changes=3, rows=3)
    with TopicReader(config, f"{prefix}-out.plain", beginning=True) as reader:
        found = [json.loads(record.value or b"") for _, record in reader.read_to_end()]
    assert [one["images"] is None for one in found] == [True, True, False]
