"""What Kafka has of topics now: their ids, where partitions begin and end, and which offset a time has."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka.client import AdminConnection, offset_of
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.topics import KafkaPartition

_SECONDS: Final = 10.0
_ENDS_SECONDS: Final = 3.0
_ABSENT: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)
_GONE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic: its id, which a topic of the same name that is created later has not, and offsets by partition.

    `starts` has each partition's first offset that is not deleted, `ends` the one behind its last.
    """

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class _Questions:
    """Asks Kafka. It connects when it is first asked."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        self._admin = AdminConnection(config)
        self._timeout = timeout

    def _listed(self) -> Mapping[str, Any]:
        try:
            topics: Mapping[str, Any] = self._admin.client().list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            raise self._admin.fault("asking for topics", error) from error
        return topics

    def _offsets(
        self, partitions: Collection[KafkaPartition], spec: Any, isolation: IsolationLevel, absent: Collection[int] = ()
    ) -> dict[KafkaPartition, int]:
        """One request for all. Partitions are left out of which Kafka says one of the errors `absent`."""
        if not partitions:
            return {}
        try:
            futures = self._admin.client().list_offsets(
                {TopicPartition(*partition): spec for partition in partitions},
                isolation_level=isolation,
                request_timeout=self._timeout,
            )
            offsets = {
                (kafka_partition.topic, kafka_partition.partition): _offset(answer, absent)
                for kafka_partition, answer in futures.items()
            }
        except KafkaException as error:
            raise self._admin.fault("asking for offsets", error) from error
        return {partition: offset for partition, offset in offsets.items() if offset is not None}


class TopicStates(_Questions):
    """What there is of topics; one thread at a time."""

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each of these topics that is there. Raises ServiceError."""
        return {name: str(description.topic_id) for name, description in self._described(topics).items()}

    def of(self, topics: Collection[str]) -> dict[str, TopicState]:
        """The state of each of these topics that is there. Raises ServiceError."""
        described = self._described(topics)
        partitions = [
            (name, partition.id) for name, description in described.items() for partition in description.partitions
        ]
        earliest, latest = OffsetSpec.earliest(), OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        starts = _by_topic(self._offsets(partitions, earliest, IsolationLevel.READ_UNCOMMITTED))
        ends = _by_topic(self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED))
        return {
            name: TopicState(str(description.topic_id), starts.get(name, {}), ends.get(name, {}))
            for name, description in described.items()
        }

    def _described(self, topics: Collection[str]) -> dict[str, Any]:
        if not topics:
            return {}
        futures = self._admin.client().describe_topics(TopicCollection(sorted(topics)), request_timeout=self._timeout)
        descriptions: dict[str, Any] = {}
        for name, answer in futures.items():
            try:
                descriptions[name] = answer.result()
            except KafkaException as error:
                if error.args[0].code() not in _ABSENT:
                    raise self._admin.fault("asking for topics", error) from error
        return descriptions


class StartOffsets(TopicStates):
    """Where to begin and to end, of what is committed: for readers that keep their own offsets."""

    def partitions(self, pattern: str) -> list[KafkaPartition]:
        """The partitions of the topics that match a regular expression as a whole. Raises ServiceError."""
        listed, matches = self._listed(), re.compile(pattern).fullmatch
        return sorted(
            (topic, partition) for topic in listed if matches(topic) for partition in listed[topic].partitions
        )

    def earliest(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offsets of the first records that are left. Raises ServiceError."""
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # theirs
        return self._offsets(partitions, earliest, IsolationLevel.READ_COMMITTED)

    def latest(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offsets behind the last records of partitions, those of open transactions not counted.

        Raises ServiceError.
        """
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        return self._offsets(partitions, latest, IsolationLevel.READ_COMMITTED)

    def at(self, partitions: Collection[KafkaPartition], milliseconds: int) -> dict[KafkaPartition, int]:
        """The offsets of the first records that Kafka got at that time or later; the ends where there are none."""
        ends = self.latest(partitions)
        offsets = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds), IsolationLevel.READ_COMMITTED)
        return {partition: offset if offset >= 0 else ends[partition] for partition, offset in offsets.items()}


class PartitionEnds(_Questions):
    """Where partitions end, for numbers that may be missing: no wait for what does not answer. Any thread may ask."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _ENDS_SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        super().__init__(config, timeout=timeout)

    def of(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        """The offset behind the last committed record of each partition that is there. Raises ServiceError."""
        return self._ends(partitions, IsolationLevel.READ_COMMITTED)

    def high_watermarks(self, topics: Collection[str]) -> dict[KafkaPartition, int]:
        """The offset behind the last record of each partition of these topics, records of open transactions included.

        A topic that does not exist has no partition. Raises ServiceError.
        """
        listed = self._listed()
        partitions = [
            (topic, partition) for topic in topics if topic in listed for partition in listed[topic].partitions
        ]
        return self._ends(partitions, IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, partitions: Collection[KafkaPartition], isolation: IsolationLevel) -> dict[KafkaPartition, int]:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
        return self._offsets(partitions, latest, isolation, _GONE)


def _offset(answer: Future[Any], absent: Collection[int]) -> int | None:
    """What a partition's answer says; None where Kafka has it no longer."""
    try:
        return offset_of(answer.result())
    except KafkaException as error:
        if error.args[0].code() not in absent:
            raise
        return None


def _by_topic(offsets: Mapping[KafkaPartition, int]) -> dict[str, dict[int, int]]:
    grouped: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in offsets.items():
        grouped.setdefault(topic, {})[partition] = offset
    return grouped
