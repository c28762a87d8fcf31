"""Partitions of Kafka as our readers see them: every committed record up to their ends, and then what follows."""

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
from tailrace_common.kafka.client import ClientErrors, FirstContact, offset_of
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_common.unreachable import UnreachableError
from tailrace_schemas.errors import ServiceError

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
"""Longer than a dead agent's transaction can stay open: its time-out of 10 s, and 10 s until Kafka looks."""

T = TypeVar("T")

_LOG: Final = logging.getLogger("tailrace.kafka")
_POLL_SECONDS: Final = 0.1
_REQUEST_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 1.0  # after which librdkafka's own time-out has come
# A broker that comes back is found within a second, not ten; what librdkafka says of each attempt, errors say at last.
_PROMPT: Final[Mapping[str, Scalar]] = {"reconnect.backoff.max.ms": 1_000, "log_level": 2}
# A broker lets a reader at the end wait so long before it says so; by default half a second, for each read.
_TO_END: Final[Mapping[str, Scalar]] = {"fetch.wait.max.ms": 20}
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
READING: Final[Mapping[str, Scalar]] = {
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "earliest",
    "allow.auto.create.topics": False,
}
"""How our consumers read, whatever the settings say: committed records, from given offsets, in no group."""


def passes(error: KafkaError, errors: ClientErrors) -> bool:
    """Whether a consumer's error may pass, so that its reader goes on asking; noted then for what is said at last."""
    if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        # librdkafka looks for a coordinator whenever a group.id is set; we are in no group and do not need one.
        return True
    if error.code() not in _MISSING and not error.retriable():
        return False
    errors(error)
    return True


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
) -> Iterator[Record]:
    """Every committed record of the partition, from its beginning to the end it has when the reading begins.

    As PartitionReader.read_to_end, which see, on a connection of its own.
    """
    with PartitionReader(config, topic, partition, timeout=timeout) as reader:
        yield from reader.read_to_end()


class _Reader(Closing):
    """Reads partitions of one topic, each in its own order, read_committed; one thread at a time, no consumer group.

    `config` is librdkafka's, as the settings pass it through. `begins` has the offset of each partition from which on
    it is read. `timeout` is how long, in seconds, a read to the end may stand still. Nothing connects before it is
    asked for something; `close` it, or use it in a `with`.
    """

    def __init__(self, config: Mapping[str, Scalar], topic: str, begins: Mapping[int, int], timeout: float) -> None:
        self._config = dict(config)
        self._topic = topic
        self._next = dict(begins)
        """The first offset of each that is not read; control records and what compaction removed count as read."""
        self._timeout = timeout
        self._errors = ClientErrors()
        self._contact = FirstContact(config, self._errors, self._serve)
        self._admin: AdminClient | None = None
        self._consumer: Consumer | None = None
        self._is_assigned = False
        self._follows = False

    def close(self) -> None:
        """Leave the topic; the next read would connect again."""
        consumer, self._consumer, self._admin, self._is_assigned = self._consumer, None, None, False
        if consumer is not None:
            consumer.close()

    def _read_to_end(self) -> Iterator[tuple[int, Record]]:
        """Partition and record of what is committed and not read yet, up to the ends at the call.

        An end is the high watermark, open transactions included: they are waited for until they end one way or the
        other. The last stable offset would hide all records behind one that a killed producer left open (contracts.md
        1). Control records leave holes, so the end counts as reached when the consumer says that it stands there, not
        when a record comes. Raises ServiceError when a partition is shorter than what was read of it. So it does when
        nothing moves for `timeout` seconds in those that are not at their ends.
        """
        ends = self._ends(IsolationLevel.READ_UNCOMMITTED)
        for partition, end in ends.items():
            if end < self._next[partition]:
                raise ServiceError(
                    f"Kafka: {self._topic}[{partition}] ends at offset {end}, but was read up to "
                    f"{self._next[partition]} before: it was deleted and created again. Start this reader again if "
                    "that was meant"
                )
        unfinished = {partition for partition, end in ends.items() if self._next[partition] < end}
        try:
            yield from self._read_on(unfinished, ends)
        finally:
            self._rest()

    def _read_on(self, unfinished: set[int], ends: Mapping[int, int]) -> Iterator[tuple[int, Record]]:
        silent_seconds = 0.0  # of those that are not at their ends: others may go on growing
        while unfinished:
            began = time.monotonic()
            step = self._step(_POLL_SECONDS)
            silent_seconds += time.monotonic() - began
            if step is not None:
                partition, record = step
                if partition in unfinished:
                    silent_seconds = 0.0
                    if self._next[partition] >= ends[partition]:
                        unfinished.discard(partition)
                if record is not None:
                    yield partition, record
            if silent_seconds > self._timeout:
                self.close()  # the next attempt connects again, and reads on
                partition = min(unfinished)
                raise ServiceError(
                    f"Kafka: {self._topic}[{partition}] was read up to offset {self._next[partition]} of "
                    f"{ends[partition]}, then nothing came for {self._timeout:g} s. A broker does not answer, or a "
                    f"producer keeps a transaction open{self._errors}"
                )

    def _poll(self, seconds: float) -> tuple[int, Record] | None:
        if not self._follows:
            self.close()
            self._follows = True
        deadline = time.monotonic() + seconds
        while True:
            step = self._step(max(0.0, deadline - time.monotonic()))
            if step is not None and step[1] is not None:
                return step[0], step[1]
            if time.monotonic() >= deadline:
                return None

    def _step(self, seconds: float) -> tuple[int, Record | None] | None:
        """The partition of which more is read than before, and its record where that is one."""
        message: Any = self._assigned().poll(seconds)
        if message is None:
            return None
        partition, error = message.partition(), message.error()
        if error is None:
            self._next[partition] = message.offset() + 1
            return partition, Record(message.offset(), message.timestamp()[1], message.key(), message.value())
        if error.code() == _AT_END:
            moved = message.offset() > self._next[partition]
            self._next[partition] = max(self._next[partition], message.offset())
            return (partition, None) if moved else None
        if not passes(error, self._errors):
            raise ServiceError(f"Kafka: reading {self}: {redact(error.str())}")
        return None

    def _assigned(self) -> Consumer:
        if self._consumer is None:
            prompt = {} if self._follows else _TO_END
            config = {"group.id": "tailrace-reader", **prompt, **self._with(READING)}
            self._consumer = _made(lambda: Consumer(config, logger=_LOG))
        if not self._is_assigned:
            # Not OFFSET_BEGINNING, for which librdkafka asks half a second later. Where 0 is deleted, it is reset.
            begins = [TopicPartition(self._topic, partition, offset) for partition, offset in self._next.items()]
            self._consumer.assign(begins)
            self._is_assigned = True
        return self._consumer

    def _rest(self) -> None:
        """Ask for nothing until something is read again: a server has some readers for each subscription.

        A consumer that is paused would do that too, and fetch nothing for 0.75 s once it is resumed.
        """
        if self._consumer is not None and self._is_assigned and not self._follows:
            self._consumer.unassign()
            self._is_assigned = False

    def _partitions(self) -> tuple[int, ...]:
        """Those that the topic has."""

        def ask(admin: AdminClient, seconds: float) -> tuple[int, ...]:
            listed = self._contact.ask(lambda limit: admin.list_topics(self._topic, timeout=limit), seconds)
            metadata = listed.topics[self._topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
            return tuple(sorted(metadata.partitions))

        return self._asked(ask)

    def _ends(self, isolation: IsolationLevel) -> dict[int, int]:
        """Behind what is committed, or behind what stands in open transactions too.

        The consumer cannot say the latter: a read_committed one gets the stable end.
        """

        def ask(admin: AdminClient, seconds: float) -> dict[int, int]:
            latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # theirs
            futures = admin.list_offsets(
                {TopicPartition(self._topic, partition): latest for partition in self._next},
                isolation_level=isolation,
                request_timeout=seconds,
            )
            return {
                kafka_partition.partition: offset_of(self._contact.ask(future.result, seconds + _GRACE_SECONDS))
                for kafka_partition, future in futures.items()
            }

        return self._asked(ask)

    def _asked(self, ask: Callable[[AdminClient, float], T]) -> T:
        """The answer, asked again while no broker knows the topic yet."""
        if self._admin is None:
            self._errors.all_down = False
            self._admin = _made(lambda: AdminClient(self._with({}), logger=_LOG))
        admin, seconds = self._admin, min(self._timeout, _REQUEST_SECONDS)
        try:
            return repeated(
                lambda: ask(admin, seconds), _SOON, _is_missing, seconds=min(self._timeout, _APPEARS_SECONDS)
            )
        except UnreachableError:
            self._admin = None
            raise
        except KafkaException as exception:
            admin.poll(0)  # calls error_cb, which knows why
            # A client that asked while a broker came back repeats, for minutes, the answer that it got then.
            self._admin = None
            raise ServiceError(f"Kafka: {self}: {_explain(exception.args[0], self._errors)}") from exception

    def _with(self, own: Mapping[str, Scalar]) -> dict[str, Any]:
        return {**_PROMPT, **self._config, **own, "error_cb": self._errors}

    def _serve(self) -> None:
        """Have the client call `_errors`: of a wrong password, or a broker that is gone, that is the only trace."""
        if self._admin is not None:
            self._admin.poll(0)


class PartitionReader(_Reader):
    """Reads one partition in order, from `begin` on."""

    def __init__(
        self,
        config: Mapping[str, Scalar],
        topic: str,
        partition: int,
        *,
        begin: int = 0,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        super().__init__(config, topic, {partition: begin}, timeout)
        self._partition = partition

    @property
    def next_offset(self) -> int:
        """The first offset not read yet."""
        return self._next[self._partition]

    def read_to_end(self) -> Iterator[Record]:
        """The committed records not read yet, up to the end that the partition has at the call; see _Reader."""
        return (record for _, record in self._read_to_end())

    def poll(self, seconds: float) -> Record | None:
        """The next committed record, waiting at most so long for it; None when there was none. Raises ServiceError."""
        polled = self._poll(seconds)
        return None if polled is None else polled[1]

    def __str__(self) -> str:
        return f"{self._topic}[{self._partition}]"


class TopicReader(_Reader):
    """Reads all partitions of a topic: from what is committed when it is opened, or from the `beginning`."""

    def __init__(
        self,
        config: Mapping[str, Scalar],
        topic: str,
        *,
        beginning: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        """Connect. Raises ServiceError where the topic does not exist, or Kafka does not answer."""
        super().__init__(config, topic, {}, timeout)
        self._follows = not beginning
        self._next = dict.fromkeys(self._partitions(), 0)
        if not beginning:
            self._next = self._ends(IsolationLevel.READ_COMMITTED)
            self._assigned()

    def read_to_end(self) -> Iterator[tuple[int, Record]]:
        """Partition and record of everything up to the end that each partition has at the call; see _Reader."""
        return self._read_to_end()

    def poll(self, seconds: float) -> tuple[int, Record] | None:
        """Partition and next committed record, waiting at most so long; None when there was none.

        Raises ServiceError.
        """
        return self._poll(seconds)

    def __str__(self) -> str:
        return f"topic {self._topic}"


def _explain(error: KafkaError, errors: ClientErrors) -> str:
    if error.code() in _MISSING:
        return "there is no such topic or partition, or it has no leader"
    return f"{redact(error.str())}{errors}"


def _made(make: Callable[[], Any]) -> Any:
    """A client; its own complaint about a setting becomes ours."""
    try:
        return make()
    except KafkaException as exception:
        raise ServiceError(f"Kafka: {redact(exception.args[0].str())}: see [kafka] in the settings") from exception


def _is_missing(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _MISSING
