"""What Kafka has of topics now: the id of each, and where the records of its partitions begin and end."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.kafka.admin import AdminConnection
from tailrace_common.kafka.client import offset_of
from tailrace_common.properties.passthrough import Scalar

_SECONDS: Final = 10.0
_ABSENT: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)


@dataclass(frozen=True, slots=True)
class TopicState:
    """One topic: its id, which a topic of the same name that is created later has not, and offsets by partition.

    `starts` has each partition's first offset that is not deleted, `ends` the one behind its last.
    """

    id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class TopicStates:
    """Asks Kafka for topics. It connects when it is first asked; one thread at a time."""

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long an answer may take, in seconds."""
        self._admin = AdminConnection(config)
        self._timeout = timeout

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """The id of each of these topics that is there. Raises ServiceError."""
        return {name: str(description.topic_id) for name, description in self._described(topics).items()}

    def of(self, topics: Collection[str]) -> dict[str, TopicState]:
        """The state of each of these topics that is there. Raises ServiceError."""
        described = self._described(topics)
        partitions = [
            TopicPartition(name, partition.id)
            for name, description in described.items()
            for partition in description.partitions
        ]
        starts = self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]  # theirs
        ends = self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # theirs
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

    def _offsets(self, partitions: list[TopicPartition], offset_spec: Any) -> dict[str, dict[int, int]]:
        if not partitions:
            return {}
        offsets: dict[str, dict[int, int]] = {}
        try:
            futures = self._admin.client().list_offsets(
                dict.fromkeys(partitions, offset_spec),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=self._timeout,
            )
            for partition, answer in futures.items():
                offsets.setdefault(partition.topic, {})[partition.partition] = offset_of(answer.result())
        except KafkaException as error:
            raise self._admin.fault("asking for topics", error) from error
        return offsets
