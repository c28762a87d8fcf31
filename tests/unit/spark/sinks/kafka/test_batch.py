"""In which order a batch gives Kafka what it has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest

from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.batch.row_image import Imaged, ImageMaker
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, RecordForm
from tailrace_spark.sinks.kafka.debezium import DebeziumForm
from tailrace_spark.sinks.kafka.json_format import JsonChanges, KafkaRecord
from tailrace_spark.sinks.kafka.outlet import KafkaBatch, KafkaOutlet, KafkaTarget
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

PLACE = RecordId("t.shop.items", 3, 5)


class Producer:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.values: list[bytes | None] = []

    def send(self, record: KafkaRecord) -> None:
        self.calls.append(record.topic)

    def send_all(self, records: Iterable[KafkaRecord]) -> None:
        sent = list(records)
        self.calls += [record.topic for record in sent]
        self.values += [record.value for record in sent]

    def acknowledge(self) -> None:
        self.calls.append("acknowledge")

    def end(self) -> None:
        self.calls.append("end")


class Outlet:
    """As much of one as a batch needs."""

    def __init__(self, calls: list[str]) -> None:
        self.letters = self
        self.events = DebeziumForm("t", lambda _topic, _token: 0, tombstones=False)
        self.form = JsonChanges(primary=False, structured=False)
        self._calls = calls

    def put(self, letters: Sequence[DeadLetter]) -> None:
        self._calls += [letter.reason for letter in letters]

    def topics_of(self, _change: Change) -> list[str]:
        return ["changes"]

    def partitions(self, _topic: str) -> int:
        return 1

    def sending(self) -> Any:
        return nullcontext()


def test_progress_follows_once_all_else_is_acknowledged() -> None:
    """Else every other task waits for all of this one's records, at the one partition of the topic of progress."""
    producer, target = Producer(), KafkaTarget(name="out", prefix="t", settings=KafkaSinkSettings())
    batch = KafkaBatch(cast(KafkaOutlet, Outlet(producer.calls)), cast(Any, producer), target, {})
    batch.set_aside(DeadLetter(PLACE, "no change"))
    assert batch.commit().dead_letters == 1
    assert producer.calls == ["no change", "acknowledge", target.progress, "end"]


def test_a_row_without_an_event_keeps_no_other_row_from_having_one() -> None:
    """A row's key may be no number. It expires, or goes with others, and then only it has no event."""
    of = table({"k": "int"}, {"c": "double"}, {"s": "int"}, {"v": "int"}, keyspace="shop", name="items")
    log, maker, partition = Log(of), ImageMaker(of), Partition()
    nan, other = log.insert((1,), (float("nan"),), 10, v=1), log.insert((1,), (2.0,), 10, v=2)
    for change in (log.static((1,), 10, s=3), nan, other):
        maker.of(partition, change, 0)
    gone = maker.of(partition, log.delete((1,), (float("nan"),), 20), 0)
    maker.of(partition, log.insert((1,), (float("nan"),), 30, v=1), 0)
    later = log.delete_partition((1,), 40)
    deleted = maker.of(partition, later, 0)
    assert gone is not None

    settings = KafkaSinkSettings.model_validate({"format": "debezium", "images": "sqlite://", "tombstones": False})
    target = KafkaTarget(name="out", prefix="t", settings=settings)
    producer = Producer()
    batch = KafkaBatch(cast(KafkaOutlet, Outlet(producer.calls)), cast(Any, producer), target, {})
    batch.put(OutgoingRecord(PLACE, later, None, RecordForm(of), images=Imaged(of, deleted, gone)))
    batch.commit()
    words = "UnsupportedError: key column c has no value that an event's key could have"
    assert producer.calls[:3] == [words, "changes.static", "changes"]


@pytest.mark.parametrize("told", [True, False])
def test_a_record_with_too_large_images_says_that_rows_have_expired(told: bool) -> None:
    """Whether its own images are told or not: nobody takes these rows for ones that are there."""
    of = table({"k": "int"}, regular={"v": "text"}, keyspace="shop", name="items")
    log, maker, partition = Log(of), ImageMaker(of), Partition()
    maker.of(partition, log.insert((1,), (), 10, v="v" * 9_000), 0)
    gone, change = maker.of(partition, log.delete((1,), (), 20), 0), log.insert((2,), (), 30, v="a")
    images = maker.of(partition, change, 0) if told else None
    settings = KafkaSinkSettings.model_validate({"images": "sqlite://", "largest_record": 4_096})
    target, producer = KafkaTarget(name="out", prefix="t", settings=settings), Producer()
    batch = KafkaBatch(cast(KafkaOutlet, Outlet(producer.calls)), cast(Any, producer), target, {})
    batch.put(OutgoingRecord(PLACE, change, None, RecordForm(of), images=Imaged(of, images, gone)))
    assert batch.commit().dead_letters == 0
    value = json.loads(producer.values[0] or b"")
    assert (value["images"], value["expired"]) == (None, None)
