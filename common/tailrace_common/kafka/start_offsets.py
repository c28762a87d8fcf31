"""Where partitions begin and end, which offset a time has, and topics' ids: for readers that keep their own offsets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka.admin import AdminConnection
from tailrace_common.kafka.client import offset_of
from tailrace_common.kafka.topic_states import TopicStates
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.topics import KafkaPartition

_SECONDS: Final = 10.0


class StartOffsets:
    """Asks a broker. It connects when it is first asked; one thread at a time."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        self._admin = AdminConnection(config)
        self._states = TopicStates(config, timeout=timeout)
        self._timeout = timeout

    def partitions(self, pattern: str) -> list[KafkaPartition]:
        """The partitions of the topics that match a regular expression as a whole. Raises ServiceError."""
        try:
            listed = self._admin.client().list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._admin.fault("asking for topics", error) from error
        matches = re.compile(pattern).fullmatch
        return sorted(
            (topic, partition) for topic in listed if matches(topic) for partition in listed[topic].partitions
        )

    def earliest(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offsets of the first records that are left. Raises ServiceError."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # theirs

    def latest(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offsets behind the last records of partitions, those of open transactions not counted.

        Raises ServiceError.
        """
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # theirs

    def at(self, partitions: Collection[KafkaPartition], milliseconds: int) -> dict[KafkaPartition, int]:
        """The offsets of the first records that Kafka got at that time or later; the ends where there are none."""
        spec = OffsetSpec.for_timestamp(milliseconds)
        ends = self.latest(partitions)
        offsets = self._offsets(partitions, spec)
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in offsets.items()}

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """As TopicStates says."""
        return self._states.ids(topics)

    def _offsets(self, partitions: Collection[KafkaPartition], spec: Any) -> dict[KafkaPartition, int]:
        if not partitions:
            return {}
        try:
            futures = self._admin.client().list_offsets(
                {TopicPartition(*partition): spec for partition in partitions},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            )
            return {
                (kafka_partition.topic, kafka_partition.partition): offset_of(answer.result())
                for kafka_partition, answer in futures.items()
            }
        except KafkaException as error:
            raise self._admin.fault("asking for offsets", error) from error
