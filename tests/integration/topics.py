"""The topics of Kafka's sink, and a producer that dies."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from tailrace.local import LocalKafka
from tailrace_common.kafka import KafkaTransactions, Outgoing, TopicReader
from tailrace_common.kafka.topics import TopicMaker
from tailrace_spark.sinks.changelog.sink import ChangeLogSink
from tailrace_spark.sinks.kafka.outlet import Config, KafkaOutlet, KafkaTarget, transactions
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings
from tailrace_spark.sinks.protocol import Sink
from tests.support.letters import MemoryLetters
from tests.unit.spark.sinks.change_log_contract import Crash


class Dying:
    """Counts the steps of a producer's transactions: the process dies before the one after the last."""

    def __init__(self, real: KafkaTransactions, steps: int) -> None:
        self._real = real
        self._left = steps

    def _step(self) -> None:
        if self._left == 0:
            raise Crash
        self._left -= 1

    def open(self) -> None:
        self._step()
        self._real.open()

    def send(self, record: Outgoing) -> None:
        self._step()
        self._real.send(record)

    def send_all(self, records: Sequence[Outgoing]) -> None:
        for record in records:
            self._step()
            self._real.send_all((record,))

    def acknowledge(self) -> None:
        self._real.acknowledge()

    def end(self) -> None:
        self._step()
        self._real.end()
        self._step()

    def close(self) -> None:
        self._real.close()


LARGEST: Final = 4 << 20


def target_of(prefix: str, **settings: object) -> KafkaTarget:
    """That of a sink with a topic for each table, of one partition."""
    section = KafkaSinkSettings.model_validate({"topic": "{prefix}-out.{table}", "partitions": 1, **settings})
    return KafkaTarget(name="copy", prefix=prefix, settings=section)


class Topics:
    """A sink's topics, and what read_committed readers find in them."""

    exactly_once = True

    def __init__(self, kafka: LocalKafka) -> None:
        self.letters = MemoryLetters()
        self.config: Config = {"bootstrap.servers": kafka.bootstrap}
        self.prefix = f"s{uuid4().hex[:10]}"
        self.target = target_of(self.prefix, partitions=2, largest_record=LARGEST)
        # Rows of all types at their ends have more than a topic takes by default: its owner has set that.
        TopicMaker(self.config).ensure(f"{self.prefix}-out.hostile", 2, {"max.message.bytes": str(LARGEST)})

    def open(self, dies_after: int | None = None) -> Sink:
        def dying(config: Config, target: KafkaTarget) -> Any:
            real = transactions(config, target)
            return real if dies_after is None else Dying(real, dies_after)

        return ChangeLogSink(KafkaOutlet(self.config, self.target, dying, letters=self.letters))

    def records(self) -> Sequence[Mapping[str, Any]]:
        topics = TopicMaker(self.config).partitions()
        return [one for name in sorted(topics) if name.startswith(f"{self.prefix}-out.") for one in self.read(name)]

    def read(self, topic: str) -> Iterator[dict[str, Any]]:
        """The values of a topic, partition by partition."""
        with TopicReader(self.config, topic, beginning=True) as reader:
            found = sorted(reader.read_to_end(), key=lambda one: (one[0], one[1].offset))
        return (json.loads(record.value or b"null") for _, record in found)
