"""Where partitions of Kafka end, for numbers that may be missing: one request, and no wait for what does not answer."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka.admin import AdminConnection
from tailrace_common.kafka.client import offset_of
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.topics import KafkaPartition

_SECONDS: Final = 3.0
_GONE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


class PartitionEnds:
    """Asks for the ends of what is committed. It connects when it is first asked; any thread may ask."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        self._admin = AdminConnection(config)
        self._timeout = timeout

    def of(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offset behind the last committed record of each partition that is there. Raises ServiceError."""
        return self._ends(partitions, IsolationLevel.READ_COMMITTED)

    def high_watermarks(self, topics: Collection[str]) -> dict[KafkaPartition, int]:
        """The offset behind the last record of each partition of these topics, records of open transactions included.

        A topic that does not exist has no partition. Raises ServiceError.
        """
        try:
            listed = self._admin.client().list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._admin.fault("asking for partitions", error) from error
        partitions = [
            (topic, partition) for topic in topics if topic in listed for partition in listed[topic].partitions
        ]
        return self._ends(partitions, IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, partitions: Collection[KafkaPartition], isolation: IsolationLevel) -> dict[KafkaPartition, int]:
        if not partitions:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        try:
            futures = self._admin.client().list_offsets(
                {TopicPartition(*partition): latest for partition in partitions},
                isolation_level=isolation,
                request_timeout=self._timeout,
            )
            offsets = {
                (kafka_partition.topic, kafka_partition.partition): _offset(answer)
                for kafka_partition, answer in futures.items()
            }
        except KafkaException as error:
            raise self._admin.fault("asking where partitions end", error) from error
        return {partition: offset for partition, offset in offsets.items() if offset is not None}


def _offset(answer: Future[Any]) -> int | None:
    """What a partition's answer says; None where Kafka has it no longer."""
    try:
        return offset_of(answer.result())
    except KafkaException as error:
        if error.args[0].code() not in _GONE:
            raise
        return None
