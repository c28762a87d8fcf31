"""The measured topics, seen from outside: made alike for both programs, and how far they go."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailrace_common.settings import TopicSettings

PARTITIONS: Final = TopicSettings().partitions
"""As many as our agent gives a topic by default."""


def reader(bootstrap: str, **more: object) -> Consumer:
    """A reader of committed records that is in nobody's way."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "benchmark",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "fetch.wait.max.ms": 5,
        "log_level": 2,
        **more,
    }
    return Consumer(settings)


class Topic:
    """One topic of Kafka at an address."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        self._there = False

    def make(self) -> None:
        """For a program that makes none."""
        self._admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])[self.name].result(30)

    @property
    def there(self) -> bool:
        """Whether it exists."""
        # All topics: asked for by its name, one that is missing could be made by the asking.
        self._there = self._there or self.name in self._admin.list_topics(timeout=60).topics
        return self._there

    def end(self, consumer: Consumer) -> int:
        """How many committed records and marks of transactions it has; 0 while nobody can say."""
        if not self.there:
            return 0
        partitions = (TopicPartition(self.name, number) for number in range(PARTITIONS))
        try:
            return sum(consumer.get_watermark_offsets(one, timeout=10, cached=False)[1] for one in partitions)
        except KafkaException:  # just made: its brokers have not all heard of it
            return 0

    def beginning(self) -> list[TopicPartition]:
        """Where a reader of everything begins."""
        return [TopicPartition(self.name, number, 0) for number in range(PARTITIONS)]
