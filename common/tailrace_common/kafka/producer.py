"""One producer's life: opened, fed, asked, closed; its errors in our words, by the table of `errors`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Clock, Config, made, service_error
from tailrace_common.kafka.errors import ANSWERS, Answer, answer_to
from tailrace_common.kafka.outgoing import LARGEST_BATCH, Outgoing, Sizes, Tombstone, headers_of
from tailrace_common.kafka.pace import Pace
from tailrace_common.secrets import redact
from tailrace_schemas.errors import FencedError, RefusedError, ServiceError, SettingsError

T = TypeVar("T")

_FATAL: Final = KafkaError._FATAL  # noqa: SLF001 - librdkafka's own codes are named so
_POLL_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 2.0
_DEFAULTS: Final[Mapping[str, Any]] = {"linger.ms": 5, "compression.type": "lz4"}
"""What [kafka] may say otherwise. Changes of a table are alike: compressed they take a tenth of the room, or less."""
# Brokers forget a producer that wrote nothing to a partition for a day (their producer.id.expiration.ms).
_KNOWN_SECONDS: Final = 3600.0
# What fails after that part of its time has failed for want of time.
_LATE: Final = 0.5
# How long what is under way may still come through after the process was stopped.
_GRACE_SECONDS: Final = 3.0


class RetryError(ServiceError):
    """The same call may succeed when it is made again."""


class StoppedError(ServiceError):
    """The process was stopped while it waited for Kafka: what is not committed is given up."""


def _never() -> bool:
    return False


class KafkaProducer(ABC):
    """What transactions and plain appends have in common; one thread at a time.

    After any error: `close` it, and go on with a new one; FencedError and SettingsError excepted, which no new one
    cures. `clock` is monotonic, in seconds; `timeout` is how many seconds Kafka may take over anything but records that
    belong together. For those `pace` says how long, and learns how much comes through. `stop` is called while it waits,
    several times a second; when it has said yes for a while, StoppedError ends the wait.

    The first record for a partition is acknowledged before the next one is sent there. A broker that knows nothing of a
    producer in a partition takes its records from any sequence number on. Of two batches under way, a new leader may
    refuse the first and take the second, which librdkafka then holds for an acknowledgement of both.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        timeout: int = 10,
        sizes: Sizes | None = None,
        pace: Pace | None = None,
        stop: Callable[[], bool] = _never,
    ) -> None:
        self._pace = pace or Pace(timeout, timeout, clock)
        self._seconds = self._pace.seconds
        self._stop = stop
        self._stopped_at: float | None = None
        self._began: float | None = None
        self._waited = 0.0
        self._failed = self._size = 0
        self._config = dict(config)
        self._clock = clock
        self._timeout = timeout
        self._sizes = sizes or Sizes()
        self._errors = ClientErrors()
        self._producer: Producer | None = None
        self._batch = 0
        self._refusals: dict[str, KafkaError] = {}
        self._failures: dict[str, KafkaError] = {}
        self._partitions: dict[str, int] = {}
        self._unsettled: set[str] = set()
        self._known: set[tuple[str, int]] = set()
        self._known_since = 0.0
        self.sent = 0
        """Records, and tombstones, of what belongs together, so far."""

    @abstractmethod
    def open(self) -> None:
        """Connect. Raises FencedError, ServiceError, SettingsError."""

    @abstractmethod
    def begin(self) -> None:
        """What follows belongs together; nothing happens where it does already."""

    @abstractmethod
    def settle(self) -> None:
        """Everything sent so far precedes, for every reader, what is sent next."""

    @abstractmethod
    def end(self) -> None:
        """Everything sent is Kafka's, or an error says that it may not be."""

    def close(self) -> None:
        """Give up what is not committed, without waiting for it."""
        self._learn_of_failure()
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()
            producer.poll(0)

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; asked once. Raises ServiceError where it does not exist."""
        if topic not in self._partitions:
            metadata = self.call("reading topics", lambda p: p.list_topics(topic, timeout=self._timeout)).topics[topic]
            if metadata.error is not None:
                raise service_error(f"topic {topic}", metadata.error, self._errors)
            self._partitions[topic] = len(metadata.partitions)
        return self._partitions[topic]

    def send(self, record: Outgoing) -> None:
        """Add a record to what belongs together. Waits while the producer's buffer is full."""
        self.begin()
        self._require_delivered()
        self._count((record,))
        self._put(record)
        self._forget_in_time()
        if (partition := (record.topic, record.partition)) not in self._known:
            self.acknowledge()
            self._known.add(partition)

    def acknowledge(self) -> None:
        """Wait until Kafka has everything sent. Raises ServiceError, RefusedError, FencedError where it has not."""
        # Records end by themselves before, and say why.
        seconds = self._seconds + 1
        deadline = self._clock() + seconds
        # Not `flush`, which goes on with delivery reports when there is a fatal error to tell, and then tells neither.
        while len(self._open_producer):
            self.wait_on()
            self.call("waiting for acknowledgements", lambda p: p.poll(_POLL_SECONDS))
            if self._clock() > deadline and (unacknowledged := len(self._open_producer)):
                self._require_delivered()
                self._look()
                raise ServiceError(f"Kafka: {unacknowledged} records are not acknowledged in {seconds} s{self._errors}")
        self._require_delivered()

    def _put(self, record: Outgoing) -> None:
        self._require_fitting(record.topic)
        self._unsettled.add(record.topic)
        deadline = self._clock() + self._seconds
        while True:
            try:
                self.call(f"a record for {record.topic}", lambda p: _produce(p, record), record.topic)
                return
            except BufferError:
                if self._clock() > deadline:
                    self._look()
                    raise ServiceError(
                        f"Kafka takes no records of {record.topic}: its buffer stays full{self._errors}"
                    ) from None
                self.wait_on()
                self._require_delivered()
                self.call("waiting for room", lambda p: p.poll(_POLL_SECONDS))

    def send_all(self, records: Sequence[Outgoing]) -> None:
        """As `send`, for many at once, in their order."""
        self.begin()
        self._require_delivered()
        self._count(records)
        topic = ""
        try:
            produce = self._open_producer.produce
            for record in self._introduced(records):
                if record.topic is not topic:
                    topic = record.topic
                    self._require_fitting(topic)
                    self._unsettled.add(topic)
                headers = headers_of(record)
                try:
                    if headers is None:
                        produce(topic, record.value, record.key, record.partition)
                    else:
                        produce(topic, record.value, record.key, record.partition, headers=headers)
                except BufferError:
                    self._put(record)
        except KafkaException as exception:
            raise self._explain(f"a record for {topic}", self._cause(exception.args[0]), topic) from exception
        # What was delivered meanwhile is let go.
        self.call("sending records", lambda p: p.poll(0))

    def _introduced(self, records: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Send the first record for each partition that does not know this producer; the others, still to be sent."""
        self._forget_in_time()
        partitions = {(record.topic, record.partition) for record in records} - self._known
        if not partitions:
            return records
        rest, waiting = [], set(partitions)
        for record in records:
            if (partition := (record.topic, record.partition)) in waiting:
                waiting.remove(partition)
                self._put(record)
            else:
                rest.append(record)
        self.acknowledge()
        self._known |= partitions
        return rest

    def _forget_in_time(self) -> None:
        if self._clock() - self._known_since > _KNOWN_SECONDS:
            self._known.clear()
            self._known_since = self._clock()

    def send_tombstone(self, topic: str, partition: int, key: bytes) -> None:
        """As `send`: the end of a key in a compacted topic."""
        self.send(Tombstone(topic, partition, key))

    def fits(self, records: Iterable[Outgoing]) -> bool:
        """Whether the topics of these take as large batches as this producer makes. One that is opened from now on
        makes no larger ones, as far as the limits are known by then."""
        topics = {record.topic for record in records}
        return all(self._sizes.limits.get(topic, self._batch) >= self._batch for topic in topics)

    def call(self, doing: str, action: Callable[[Producer], T], topic: str | None = None) -> T:
        """The client's answer, or its error in our words; `topic` is the one that it concerns, if it is one."""
        producer = self._open_producer
        try:
            return action(producer)
        except KafkaException as exception:
            raise self._explain(doing, self._cause(exception.args[0]), topic) from exception

    @property
    def _open_producer(self) -> Producer:
        if self._producer is None:
            raise ServiceError("Kafka: the producer is closed")
        return self._producer

    def _require_fitting(self, topic: str) -> None:
        """Raise ServiceError where a topic takes smaller batches than this producer makes; a new one makes such."""
        if self._sizes.limits.get(topic, self._batch) < self._batch:
            raise ServiceError(f"Kafka: {topic} takes smaller batches than those so far: starting over with such")

    def _connect(self, own: Mapping[str, Any]) -> None:
        sizes = self._sizes.settings()
        sizes["batch.size"] = min(sizes["batch.size"], int(self._config.get("batch.size", LARGEST_BATCH)))
        reports = {
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
            "throttle_cb": lambda event: self._pace.throttle(event.throttle_time),
        }
        required = {**own, **sizes, **reports, "error_cb": self._errors}
        options = {**QUIET, **_DEFAULTS, **self._config, **required}
        self._producer = made(lambda: Producer(options, logger=LOG))
        self._batch = sizes["batch.size"]
        self._known.clear()
        self._known_since = self._clock()

    def wait_on(self) -> None:
        """What waits for Kafka calls this all the time. Raises StoppedError a while after `stop` has said yes."""
        if not self._stop():
            return
        if self._stopped_at is None:
            self._stopped_at = self._clock()
        elif self._clock() - self._stopped_at > _GRACE_SECONDS:
            raise StoppedError("Kafka: told to stop while records were on their way: they are given up")

    def _begin_measuring(self) -> None:
        """What belongs together begins, as soon as Kafka listens."""
        self.call("hearing of a quota", lambda p: p.poll(0))
        self._waited = self._pace.silence
        deadline = self._clock() + self._waited
        while self._clock() < deadline and self._pace.silence > 0:
            self.wait_on()
            self.call("waiting for a quota", lambda p: p.poll(_POLL_SECONDS))
        self._began = self._clock()
        self.sent = self._size = self._failed = 0

    def _learn_of_success(self) -> None:
        if self._began is not None:
            self._pace.came_through(self._size, self._clock() - self._began, self._waited)
        self._began = None

    def _learn_of_failure(self) -> None:
        """What is given up has run out of its time, or was given up for another reason."""
        began, self._began = self._began, None
        if began is None or self._producer is None or self._stopped_at is not None or not self.sent:
            return
        seconds = self._clock() - began
        if seconds >= self._seconds * _LATE:
            undelivered = min(self.sent, self._failed + len(self._producer))
            self._pace.timed_out(self._size, self._size * (self.sent - undelivered) // self.sent, seconds)

    def _count(self, records: Sequence[Outgoing]) -> None:
        self.sent += len(records)
        self._size += sum([len(record.key or b"") + len(record.value or b"") for record in records])

    def _again(self, doing: str, action: Callable[[Producer], object], seconds: float) -> None:
        """Make a call until it comes through, or does not within so many seconds."""
        deadline = self._clock() + seconds
        while True:
            try:
                self.call(doing, action)
                return
            except RetryError as error:
                self.wait_on()
                if self._clock() > deadline:
                    self._look()
                    raise ServiceError(str(error)) from error

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            return
        self._failed += 1
        refused = ANSWERS.get(error.code()) is Answer.REFUSED
        errors = self._refusals if refused else self._failures
        if message.topic() not in errors:
            errors[message.topic()] = error
            (LOG.warning if refused else LOG.info)("a record of %s: %s", message.topic(), error.str())

    def _explain(self, doing: str, error: KafkaError, topic: str | None = None) -> Exception:
        answer = answer_to(
            error.code(), retriable=error.retriable(), abort=error.txn_requires_abort(), fatal=error.fatal()
        )
        if self._producer is not None:
            with suppress(KafkaException):  # of a producer that was fenced: what is explained here
                self._producer.poll(0)  # calls error_cb, which knows why
        words = f"Kafka: {doing}: {redact(error.str())}{self._errors}"
        if answer is Answer.FENCED:
            return self._fenced(doing, error)
        if answer is Answer.RETRY:
            return RetryError(words)
        if answer is Answer.SETTINGS:
            return SettingsError(f"[kafka]: {words}")
        if answer is Answer.REFUSED and topic is not None:
            return RefusedError(topic, redact(error.str()))
        self._look()
        if self._failures:
            failed, first = next(iter(self._failures.items()))
            words = f"{words} (a record of {failed}: {redact(first.str())})"
        return ServiceError(words)

    def _fenced(self, doing: str, error: KafkaError) -> Exception:
        return FencedError(f"another producer has started in our place: {redact(error.str())}, {doing}")

    def _require_delivered(self) -> None:
        """Raise ServiceError, RefusedError, FencedError where a record sent before failed: the rest is in vain."""
        if self._failures or self._refusals:
            self._look()
            topic, error = next(iter(self._failures.items()))
            if ANSWERS.get((cause := self._cause(error)).code()) is Answer.FENCED:
                raise self._fenced(f"a record of {topic}", cause)
            raise ServiceError(f"Kafka: a record of {topic}: {redact(error.str())}{self._errors}")

    def _look(self) -> None:
        """Raise RefusedError where what failed is a topic's own fault, which no new producer cures."""
        if not self._refusals:
            self._ask_why()
        if self._refusals:
            topic, error = next(iter(self._refusals.items()))
            raise RefusedError(topic, redact(error.str()))

    def _ask_why(self) -> None:
        """Ask Kafka about the topics of which a record failed, until one is its own reason, or nothing answers.

        Where none failed, about those that are gone: the client itself waits for such a topic, for longer than a
        transaction may last.
        """
        producer = self._producer
        if producer is None:
            return
        try:
            suspects = list(self._failures)
            if not suspects:
                suspects = sorted(self._unsettled - producer.list_topics(timeout=_LOOK_SECONDS).topics.keys())
            for topic in suspects:
                error = producer.list_topics(topic, timeout=_LOOK_SECONDS).topics[topic].error
                if error is not None and ANSWERS.get(error.code()) is Answer.REFUSED:
                    self._refusals[topic] = error
                    return
        except KafkaException as exception:
            LOG.debug("Kafka does not say why records failed: %s", exception.args[0].str())

    def _cause(self, error: KafkaError) -> KafkaError:
        """What is behind a bare "fatal error": any further call on the transaction says it."""
        if error.code() != _FATAL or self._producer is None:
            return error
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as exception:
            cause: KafkaError = exception.args[0]
            return cause
        return error


def _produce(producer: Producer, record: Outgoing) -> None:
    headers = headers_of(record) or []
    producer.produce(record.topic, value=record.value, key=record.key, partition=record.partition, headers=headers)
    producer.poll(0)
