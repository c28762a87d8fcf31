"""In which order a batch gives Kafka what it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from typing import Any, cast

from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.kafka.json_format import KafkaRecord
from tailrace_spark.sinks.kafka.outlet import KafkaBatch, KafkaOutlet, KafkaTarget
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings


class Producer:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def send(self, record: KafkaRecord) -> None:
        self.calls.append(record.topic)

    def send_all(self, records: Iterable[KafkaRecord]) -> None:
        self.calls += [record.topic for record in records]

    def acknowledge(self) -> None:
        self.calls.append("acknowledge")

    def end(self) -> None:
        self.calls.append("end")


class Outlet:
    """As much of one as a batch of letters needs."""

    def __init__(self, calls: list[str]) -> None:
        self.letters = self
        self._calls = calls

    def put(self, letters: Sequence[DeadLetter]) -> None:
        self._calls += [letter.reason for letter in letters]

    def sending(self) -> Any:
        return nullcontext()


def test_progress_follows_once_all_else_is_acknowledged() -> None:
    """Else every other task waits for all of this one's records, at the one partition of the topic of progress."""
    producer, target = Producer(), KafkaTarget(name="out", prefix="t", settings=KafkaSinkSettings())
    batch = KafkaBatch(cast(KafkaOutlet, Outlet(producer.calls)), cast(Any, producer), target, {})
    batch.set_aside(DeadLetter(RecordId("t.shop.items", 3, 5), "no change"))
    assert batch.commit().dead_letters == 1
    assert producer.calls == ["no change", "acknowledge", target.progress, "end"]
