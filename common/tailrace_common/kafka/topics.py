"""Topics of Kafka: made where they are missing; their ids, where partitions begin and end, which offset a time has."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its __all__ forgets it
    AdminClient,
    ClusterMetadata,
    OffsetSpec,
)
from confluent_kafka.cimpl import NewTopic

from tailrace_common.backoff import Waits, repeated
from tailrace_common.kafka.client import (
    LOG,
    AdminConnection,
    Config,
    FirstContact,
    offset_of,
    service_error,
)
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, SettingsError, TailraceError
from tailrace_schemas.topics import KafkaPartition, TopicPlan

_BROKERS_DEFAULT: Final = -1
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka's own codes are named so
_OF_THE_TOPIC: Final = (KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG)
_SECONDS: Final = 10.0
_ENDS_SECONDS: Final = 3.0
_ABSENT: Final = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_ID)
_GONE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own errors
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
)


class InvalidTopicError(SettingsError):
    """Kafka has no topic of such a name, or not with these settings; others can be made."""


class TopicMaker:
    """Topics, made where they are missing; `ensure` takes those that are there as they are.

    Connects when first used; `timeout` is how many seconds Kafka may take over anything.
    """

    def __init__(self, config: Config, timeout: int = 10) -> None:
        self._timeout = timeout
        self._connection = AdminConnection(config)
        self.errors: Final = self._connection.errors
        self._contact = FirstContact(config, self.errors, lambda: self.client.poll(0))

    @property
    def client(self) -> AdminClient:
        """What asks Kafka. Raises SettingsError for a property that librdkafka refuses."""
        return self._connection.client()

    def metadata(self) -> ClusterMetadata:
        """Topics and brokers. Raises ServiceError, with what the client's connections said last, SettingsError."""
        client = self.client
        try:
            return self._contact.ask(lambda seconds: client.list_topics(timeout=seconds), self._timeout)
        except KafkaException as error:
            client.poll(0)  # calls error_cb, which knows why
            raise service_error("listing topics", error.args[0], self.errors) from error

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has that is there. Raises ServiceError, SettingsError."""
        return {name: len(topic.partitions) for name, topic in self.metadata().topics.items()}

    def ensure(self, topic: str, partitions: int, settings: Mapping[str, str], copies: int = _BROKERS_DEFAULT) -> int:
        """Make it with so many partitions and copies, by default as many as the brokers have it, if it is missing.

        How many partitions it has. Raises SettingsError where Kafka will not have such a topic, or this user may not
        make it; ServiceError.
        """
        if count := self.partitions().get(topic):
            return count
        self.create([NewTopic(topic, partitions, copies, config=dict(settings))], self._refusal)
        return self.until_shown(topic)

    def ensure_planned(self, plan: TopicPlan, *, create: bool = True) -> int:
        """As `ensure`, with as many copies as the plan says for the number of brokers. `create`: topics.create."""
        if not create:
            if not (partitions := self.partitions().get(plan.name)):
                raise SettingsError(
                    f"topic {plan.name} is missing, and topics.create is false: `tailrace topics plan` has it"
                )
            return partitions
        brokers = len(self.metadata().brokers)
        return self.ensure(plan.name, plan.partitions, plan.settings(brokers), plan.replication(brokers))

    def create(self, topics: list[NewTopic], refusal: Callable[[str, KafkaError], TailraceError]) -> list[str]:
        """Make topics, all with one request; the names of those that were not there.

        Raises what `refusal` makes of a topic's name and Kafka's error.
        """
        created: list[str] = []
        limits = {"operation_timeout": self._timeout, "request_timeout": self._timeout}
        for name, future in self.client.create_topics(topics, **limits).items():
            try:
                future.result()
            except KafkaException as error:
                # Programs of all hosts start at the same time: a lost race is success.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise refusal(name, error.args[0]) from error
            else:
                LOG.info("created topic %s", name)
                created.append(name)
        return created

    def until_shown(self, topic: str) -> int:
        """How many partitions a topic has that was just created: not every broker knows it at once.

        It is asked for until the time is over; then ServiceError is raised.
        """

        def shown() -> int:
            count = self.partitions().get(topic, 0)
            if not count:
                raise _NotThereError(f"Kafka: topic {topic} was created, but no broker shows it")
            return count

        return repeated(shown, Waits(0.01, 0.2), lambda error: isinstance(error, _NotThereError), seconds=self._timeout)

    def _refusal(self, topic: str, error: KafkaError) -> TailraceError:
        if error.retriable() or error.code() == _TIMED_OUT:
            return service_error(f"creating topic {topic}", error, self.errors)
        if error.code() in _OF_THE_TOPIC:
            return InvalidTopicError(f"topic {topic} cannot be created: {redact(error.str())}")
        return SettingsError(
            f"topic {topic} is missing and cannot be created: {redact(error.str())}; make it, or give the right"
        )


class _NotThereError(ServiceError):
    """It is not known to the broker that was asked."""


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
