"""A Kafka partition as our readers see it: every committed record up to its end, and then what follows.

The importer of confluent_kafka for what both halves read: `.offsets`, `.schemas`, `.generations`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # its __all__ forgets it

from tailrace_common.backoff import Waits, repeated
from tailrace_common.closing import Closing
from tailrace_common.kafka.client import ClientErrors, offset_of
from tailrace_common.kafka.contact import FirstContact
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_common.unreachable import UnreachableError
from tailrace_schemas.errors import ServiceError

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
"""Longer than a dead agent's transaction can stay open: its time-out of 10 s, and 10 s until Kafka looks."""

Clock = Callable[[], float]
T = TypeVar("T")

_LOG: Final = logging.getLogger("tailrace.kafka")
_POLL_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0  # after which librdkafka's own time-out has come
# A broker that comes back is found within a second, not ten; what librdkafka says of each attempt, errors say at last.
_PROMPT: Final[Mapping[str, Scalar]] = {"reconnect.backoff.max.ms": 1_000, "log_level": 2}
# A topic that was just created is not known to every broker at once.
_APPEARS_SECONDS: Final = 5.0
# Most often it takes some milliseconds.
_SOON: Final = Waits(0.01, 0.2)
# librdkafka's own error codes are documented, in spite of the underscore.
_AT_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_MISSING: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # of a broker that came back a moment ago
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
        KafkaError._NOENT,  # noqa: SLF001  # what list_offsets says of them: no leaders
    }
)
# librdkafka looks for a coordinator whenever a group.id is set; we are in no group and do not need one.
_HARMLESS: Final = frozenset({KafkaError.GROUP_AUTHORIZATION_FAILED})
READING: Final[Mapping[str, Scalar]] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
"""How our consumers read, whatever the settings say: committed records, from given offsets, in no group."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the partition. `timestamp`: milliseconds, by the broker's clock where it is append time."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def read_to_end(
    config: Mapping[str, Scalar],
    topic: str,
    partition: int,
    *,
    timeout: float = DEFAULT_TIMEOUT_SECONDS,
    clock: Clock = time.monotonic,
) -> Iterator[Record]:
    """Every committed record of the partition, from its beginning to the end it has when the reading begins.

    As PartitionReader.read_to_end, which see, on a connection of its own.
    """
    with PartitionReader(config, topic, partition, timeout=timeout, clock=clock) as reader:
        yield from reader.read_to_end()


class PartitionReader(Closing):
    """Reads one partition in order from `begin` on, read_committed; one thread at a time, no consumer group.

    `config` is librdkafka's, as the settings pass it through. `timeout` is how long, in seconds, a read to the end
    may stand still. Nothing connects before the first read; `close` it, or use it in a `with`.
    """

    def __init__(
        self,
        config: Mapping[str, Scalar],
        topic: str,
        partition: int,
        *,
        begin: int = 0,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        self._config = dict(config)
        self._where = TopicPartition(topic, partition)
        self._timeout = timeout
        self._clock = clock
        self._errors = ClientErrors()
        self._contact = FirstContact(config, self._errors, self._serve)
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self.next_offset = begin
        """The first offset not read yet; control records and what compaction removed count as read."""

    def read_to_end(self) -> Iterator[Record]:
        """The committed records not read yet, up to the end that the partition has at the call.

        The end is the high watermark, open transactions included: they are waited for until they end one way or the
        other. The last stable offset would hide all records behind one that a killed producer left open (contracts.md
        1). Control records leave holes, so the end counts as reached when the consumer says that it
        stands there, not when a record comes. Raises ServiceError when nothing moves for `timeout` seconds, or when
        the partition is shorter than what was read of it.
        """
        end = self._end()
        if end < self.next_offset:
            raise ServiceError(
                f"Kafka: {self} ends at offset {end}, but was read up to {self.next_offset} before: it was deleted and"
                " created again. Start this reader again if that was meant"
            )
        deadline = self._clock() + self._timeout
        while self.next_offset < end:
            previous = self.next_offset
            record = self._poll(_POLL_SECONDS)
            if record is not None:
                yield record
            if self.next_offset > previous:
                deadline = self._clock() + self._timeout
            elif self._clock() > deadline:
                self.close()  # the next attempt connects again, and reads on
                raise ServiceError(_stuck(str(self), self.next_offset, end, self._timeout, self._errors))

    def poll(self, seconds: float) -> Record | None:
        """The next committed record, waiting at most so long for it; None when there was none. Raises ServiceError."""
        deadline = self._clock() + seconds
        while (remaining := deadline - self._clock()) >= 0:
            record = self._poll(remaining)
            if record is not None:
                return record
        return None

    def close(self) -> None:
        """Leave the partition; the reader can be used no more."""
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            consumer.close()

    def __str__(self) -> str:
        return f"{self._where.topic}[{self._where.partition}]"

    def _poll(self, seconds: float) -> Record | None:
        message: Any = self._assigned().poll(seconds)
        if message is None:
            return None
        error = message.error()
        if error is None:
            self.next_offset = message.offset() + 1
            return Record(message.offset(), message.timestamp()[1], message.key(), message.value())
        if error.code() == _AT_END:
            self.next_offset = max(self.next_offset, message.offset())
        elif error.code() in _MISSING or error.retriable():
            self._errors(error)
        elif error.code() not in _HARMLESS:
            raise ServiceError(f"Kafka: reading {self}: {redact(error.str())}")
        return None

    def _assigned(self) -> Consumer:
        if self._consumer is None:
            config = {"group.id": "tailrace-reader", **self._with(READING)}
            self._consumer = _made(lambda: Consumer(config, logger=_LOG))
            # Not OFFSET_BEGINNING, for which librdkafka asks half a second later. Where 0 is deleted, it is reset.
            self._consumer.assign([TopicPartition(self._where.topic, self._where.partition, self.next_offset)])
        return self._consumer

    def _end(self) -> int:
        """The high watermark. The consumer cannot say it: a read_committed one gets the stable end."""
        if self._admin is None:
            self._errors.all_down = False
            self._admin = _made(lambda: AdminClient(self._with({}), logger=_LOG))
        admin, seconds = self._admin, min(self._timeout, _REQUEST_SECONDS)

        def ask() -> int:
            future = admin.list_offsets(
                {self._where: OffsetSpec.latest()},  # type: ignore[no-untyped-call]  # theirs
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=seconds,
            )[self._where]
            return offset_of(self._contact.ask(future.result, seconds + _GRACE_SECONDS))

        try:
            return repeated(ask, _SOON, _is_missing, seconds=min(self._timeout, _APPEARS_SECONDS))
        except UnreachableError:
            self._admin = None
            raise
        except KafkaException as exception:
            # A client that asked while a broker came back repeats, for minutes, the answer that it got then.
            self._admin = None
            raise ServiceError(f"Kafka: the end of {self}: {_explain(exception.args[0], self._errors)}") from exception

    def _with(self, own: Mapping[str, Scalar]) -> dict[str, Any]:
        return {**_PROMPT, **self._config, **own, "error_cb": self._errors}

    def _serve(self) -> None:
        """Have the client call `_errors`: of a wrong password, or a broker that is gone, that is the only trace."""
        if self._admin is not None:
            self._admin.poll(0)


class TopicReader(Closing):
    """Reads all partitions of a topic, read_committed, each in its own order; one thread at a time, in no group.

    From what is committed when it is opened, or from the `beginning`. `timeout` is how long, in seconds, a read to
    the end may stand still. `close` it, or use it in a `with`.
    """

    def __init__(
        self,
        config: Mapping[str, Scalar],
        topic: str,
        *,
        beginning: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        clock: Clock = time.monotonic,
    ) -> None:
        """Connect. Raises ServiceError where the topic does not exist, or Kafka does not answer."""
        self._topic = topic
        self._timeout = timeout
        self._clock = clock
        self._errors = ClientErrors()
        self._admin_config: dict[str, Any] = {**_PROMPT, **config, "error_cb": self._errors}
        self._admin = self._connected()
        self._contact = FirstContact(config, self._errors, lambda: self._admin.poll(0))
        self._next: dict[int, int] = dict.fromkeys(self._partitions(), 0)
        if not beginning:
            self._next = self._ends(IsolationLevel.READ_COMMITTED)
        full_config: dict[str, Any] = {"group.id": "tailrace-reader", **config, **READING, "error_cb": self._errors}
        self._consumer: Consumer = _made(lambda: Consumer(full_config, logger=_LOG))
        self._consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in self._next.items()])

    def read_to_end(self) -> Iterator[tuple[int, Record]]:
        """Partition and record of everything up to the end that each partition has at the call.

        What PartitionReader.read_to_end says of the end holds here too. Raises ServiceError when nothing moves.
        """
        ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
        deadline = self._clock() + self._timeout
        while unfinished := [partition for partition, end in ends.items() if self._next[partition] < end]:
            previous = dict(self._next)
            polled = self.poll(_POLL_SECONDS)
            if polled is not None:
                yield polled
            if self._next != previous:
                deadline = self._clock() + self._timeout
            elif self._clock() > deadline:
                partition = unfinished[0]
                name = f"{self._topic}[{partition}]"
                raise ServiceError(_stuck(name, self._next[partition], ends[partition], self._timeout, self._errors))

    def poll(self, seconds: float) -> tuple[int, Record] | None:
        """Partition and next committed record, waiting at most so long; None when there was none, or other news.

        Raises ServiceError.
        """
        message: Any = self._consumer.poll(seconds)
        if message is None:
            return None
        partition, error = message.partition(), message.error()
        if error is None:
            self._next[partition] = message.offset() + 1
            return partition, Record(message.offset(), message.timestamp()[1], message.key(), message.value())
        if error.code() == _AT_END:
            self._next[partition] = max(self._next[partition], message.offset())
        elif error.code() in _MISSING or error.retriable():
            self._errors(error)
        elif error.code() not in _HARMLESS:
            raise ServiceError(f"Kafka: reading {self._topic}: {redact(error.str())}")
        return None

    def close(self) -> None:
        """Leave the topic; the reader can be used no more."""
        self._consumer.close()

    def _connected(self) -> AdminClient:
        client: AdminClient = _made(lambda: AdminClient(self._admin_config, logger=_LOG))
        return client

    def _partitions(self) -> tuple[int, ...]:
        def ask() -> tuple[int, ...]:
            topics = self._contact.ask(
                lambda seconds: self._admin.list_topics(self._topic, timeout=seconds), _REQUEST_SECONDS
            ).topics
            metadata = topics[self._topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            return tuple(sorted(metadata.partitions))

        return self._asked(ask)

    def _ends(self, isolation: IsolationLevel) -> dict[int, int]:
        """The ends of all partitions: behind what is committed, or with what stands in open transactions too."""
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(
                {TopicPartition(self._topic, partition): latest for partition in self._next},
                isolation_level=isolation,
                request_timeout=min(self._timeout, _REQUEST_SECONDS),
            )
            return {
                kafka_partition.partition: offset_of(future.result()) for kafka_partition, future in futures.items()
            }

        return self._asked(ask)

    def _asked(self, ask: Callable[[], T]) -> T:
        """The answer, asked again while no broker knows the topic yet."""
        try:
            return repeated(ask, _SOON, _is_missing, seconds=min(self._timeout, _APPEARS_SECONDS))
        except KafkaException as exception:
            self._admin.poll(0)  # calls error_cb, which knows why
            self._admin = self._connected()  # as in PartitionReader: the old one would repeat this answer
            raise ServiceError(
                f"Kafka: topic {self._topic}: {_explain(exception.args[0], self._errors)}"
            ) from exception


def _explain(error: KafkaError, errors: ClientErrors) -> str:
    if error.code() in _MISSING:
        return "there is no such topic or partition, or it has no leader"
    return f"{redact(error.str())}{errors}"


def _stuck(where: str, reached: int, end: int, timeout: float, errors: ClientErrors) -> str:
    return (
        f"Kafka: {where} was read up to offset {reached} of {end}, then nothing came for {timeout:g} s: a broker does"
        f" not answer, or a producer keeps a transaction open{errors}"
    )


def _made(make: Callable[[], Any]) -> Any:
    """A client; its own complaint about a setting becomes ours."""
    try:
        return make()
    except KafkaException as exception:
        raise ServiceError(f"Kafka: {redact(exception.args[0].str())}: see [kafka] in the settings") from exception


def _is_missing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _MISSING
