"""Row images behind a real Kafka and a real Spark: in a query of one's own, and in Debezium's events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace_spark
from tailrace.local import LocalKafka
from tailrace_common.kafka import TopicReader
from tailrace_common.settings import Settings
from tailrace_common.topics.schemas import SchemaReader
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.source.images import ImageStore, imaged
from tests.integration.feed import Feed
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CART = table({"id": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"}, keyspace="shop", name="cart")
LOG = Log(CART)
ITEMS = table({"id": "int"}, regular={"total": "int", "state": "text"}, keyspace="shop", name="items")
ITEM_LOG = Log(ITEMS)
ITEM_HISTORY = (
    [
        ITEM_LOG.insert((1,), (), 10, total=20, state="open"),
        ITEM_LOG.insert((2,), (), 10, total=5, state="paid"),
        ITEM_LOG.insert((3,), (), 10, total=5, state="open"),
    ],
    [
        ITEM_LOG.update((1,), (), 20, state="paid"),
        ITEM_LOG.update((2,), (), 20, total=15),
        ITEM_LOG.update((1,), (), 30, total=30),
    ],
    [ITEM_LOG.update((1,), (), 40, total=1), ITEM_LOG.delete((2,), (), 40), ITEM_LOG.delete((3,), (), 40)],
)
"""Of rows: 1 begins to match, changes, and ceases to; 2 begins to, and is deleted; 3 never does."""
HISTORY = (
    [LOG.insert((1,), (1,), 10, v="a"), LOG.insert((1,), (2,), 10, v="b"), LOG.static((1,), 10, s="static")],
    [LOG.update((1,), (1,), 20, v="c"), LOG.delete_range((1,), (2,), (), 20)],
)
ONE, TWO = {"id": 1, "c": 1}, {"id": 1, "c": 2}
Told = tuple[str, dict[str, Any], dict[str, Any] | None, dict[str, Any] | None]
EXPECTED: list[list[Told]] = [
    [("c", ONE, None, {"v": "a"}), ("c", TWO, None, {"v": "b"}), ("c", {"id": 1}, None, {"s": "static"})],
    [("u", ONE, {"v": "a"}, {"v": "c"}), ("d", TWO, {"v": "b"}, None)],
]


@pytest.fixture
def feed(kafka: LocalKafka, prefix: str) -> Iterator[Feed]:
    """An empty cluster's topics."""
    feed = Feed(kafka.bootstrap, prefix)
    yield feed
    feed.close()


class Dying:
    """What a query does with each batch: it takes the images, and dies at the second batch's first delivery."""

    def __init__(self, store: ImageStore, schemas: SchemaReader, told: list[list[Told]], *, dies: bool) -> None:
        self._store, self._schemas, self._told, self._dies = store, schemas, told, dies

    def __call__(self, frame: DataFrame, _: int) -> None:
        found: list[Told] = [
            (image.op.value, dict(image.key), _plain(image.before), _plain(image.after))
            for piece in imaged(frame.toArrow(), self._store, self._schemas)
            for one in piece.changes
            for image in (one.images.images if one.images is not None else None) or ()
        ]
        if self._dies and self._told:
            raise RuntimeError("the process dies here")
        if found:
            self._told.append(found)


def _plain(values: Any) -> dict[str, Any] | None:
    return None if values is None else dict(values)


@pytest.mark.promise("images.repeated")
@pytest.mark.long
def test_a_query_of_ones_own_has_the_same_images_again(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate({"kafka": {"bootstrap.servers": kafka.bootstrap}, "topics": {"prefix": prefix}})
    feed.announce()
    told: list[list[Told]] = []
    for history in HISTORY:
        feed.publish(history)
        for dies in (True, False):
            with (
                SchemaReader(settings.kafka.reveal(), prefix) as schemas,
                closing(ImageStore(f"sqlite:///{tmp_path}/images.db", prefix)) as store,
            ):
                take = Dying(store, schemas, told, dies=dies)
                writer = tailrace_spark.changes(spark, settings).writeStream.foreachBatch(take)
                writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
                query = writer.trigger(availableNow=True).start()
                if dies and history is HISTORY[1]:
                    with pytest.raises(Exception, match="the process dies here"):
                        query.awaitTermination()
                else:
                    query.awaitTermination()
    assert told == EXPECTED


@pytest.mark.promise("debezium.folded")
@pytest.mark.long
def test_a_stream_writes_debeziums_events(
    spark: SparkSession, feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(tmp_path / "checkpoint")},
            "sink": {
                "out": {
                    "type": "kafka",
                    "topic": "{prefix}-out.{table}",
                    "partitions": 2,
                    "format": "debezium",
                    "images": f"sqlite:///{tmp_path}/images.db",
                }
            },
        }
    )
    feed.announce()
    for history in HISTORY:
        feed.publish(history)
        with closing(open_sink("out", settings.sink["out"], prefix, kafka=settings.kafka.reveal())) as sink:
            sink.reach()
            location = settings.sink["out"].location
            Stream(spark, settings, sink, location=location).run(availableNow=True)
    config = settings.kafka.reveal()
    found: list[tuple[Any, ...]] = []
    for topic in (f"{prefix}-out.cart", f"{prefix}-out.cart.static"):
        with TopicReader(config, topic, beginning=True) as reader:
            for _, record in sorted(reader.read_to_end(), key=lambda one: (one[0], one[1].offset)):
                key = json.loads(record.key or b"")["payload"]
                value = None if record.value is None else json.loads(record.value)["payload"]
                found.append((key, value and value["op"], value and value["after"]))
    assert found == [
        (ONE, "c", {**ONE, "v": "a"}),
        (TWO, "c", {**TWO, "v": "b"}),
        (ONE, "u", {**ONE, "v": "c"}),
        (TWO, "d", None),
        (TWO, None, None),
        ({"id": 1}, "c", {"id": 1, "s": "static"}),
    ]


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
    settings = Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": stream,
            "sink": {"out": topic},
        }
    )
    feed.announce()
    for history in ITEM_HISTORY:
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
