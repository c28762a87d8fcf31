"""Kafka as the agent writes it: one transactional producer, one idempotent one, and topics. Imports confluent_kafka."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import stamina
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]  # its __all__ forgets it
from confluent_kafka.cimpl import NewTopic

from tailrace.capture.cdcraw import Resume
from tailrace.capture.parked import LotKey, Parked
from tailrace.errors import FencedError
from tailrace.history.records import HistoryRecord, encode_history, history_key, read_history
from tailrace.publish.offsets import encode_offsets, encode_parked, offsets_key, parked_key, read_offsets
from tailrace.publish.record import Record
from tailrace_common.kafka import read_to_end
from tailrace_common.passthrough import Scalar
from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.topics import (
    Internal,
    TopicOptions,
    TopicPlan,
    host_partition,
    internal_plan,
    internal_topic,
    table_plan,
)

Config = Mapping[str, Scalar]
Clock = Callable[[], float]
T = TypeVar("T")

_LOG: Final = logging.getLogger("tailrace.publish")
_FENCED: Final = frozenset(
    {
        KafkaError._FENCED,  # noqa: SLF001 - librdkafka's own codes are named so
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
_ALL_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - the same
_FATAL: Final = KafkaError._FATAL  # noqa: SLF001 - the same
# The next start aborts it anyway; this only spares readers the wait where Kafka answers.
_ABORT_SECONDS: Final = 1.0
# librdkafka logs every vain attempt to connect; what it says at last is in our own errors.
_QUIET: Final[Config] = {"log_level": 2}
_POLL_SECONDS: Final = 0.1


class _Errors:
    """The last thing that librdkafka said of its connections: a wrong password shows nowhere else."""

    def __init__(self) -> None:
        self.last = ""

    def __call__(self, error: KafkaError) -> None:
        if error.code() != _ALL_DOWN:
            self.last = redact(error.str())
        elif not self.last:  # else the reason came before it
            self.last = f"{error.str()}: are bootstrap.servers and security.protocol right?"

    def __str__(self) -> str:
        return f"; the last error of its connections: {self.last}" if self.last else ""


def _made(make: Callable[[], T]) -> T:
    """A client; librdkafka's complaint about one of [kafka]'s settings becomes ours."""
    try:
        return make()
    except KafkaException as exception:
        raise SettingsError(f"[kafka]: {redact(exception.args[0].str())}") from exception


def _service_error(doing: str, error: KafkaError, errors: _Errors) -> ServiceError:
    return ServiceError(f"Kafka: {doing}: {redact(error.str())}{errors}")


class KafkaTransactions:
    """Records in transactions of one transactional id, all or nothing; one thread at a time.

    After any error but FencedError: `close` it, and go on with a new one. `clock` is monotonic, in seconds; `timeout`
    is how long Kafka may take over anything, and Kafka's own limit for an open transaction.
    """

    def __init__(self, config: Config, id: str, *, clock: Clock, timeout: int = 10) -> None:
        self._config = dict(config)
        self._clock = clock
        self._timeout = timeout
        self._errors = _Errors()
        self._id = id
        self._producer: Producer | None = None
        self._began: float | None = None
        self._refused: KafkaError | None = None
        self._partitions: dict[str, int] = {}

    def open(self) -> None:
        """Fence an older user of the id, and end its transaction. Raises FencedError, ServiceError."""
        own = {
            "transactional.id": self._id,
            "transaction.timeout.ms": self._timeout * 1000,
            # A record that waits longer than its transaction may live cannot be committed any more.
            "message.timeout.ms": self._timeout * 800,
            "error_cb": self._errors,
            "on_delivery": self._delivered,
            "delivery.report.only.error": True,
        }
        self._producer = _made(lambda: Producer({**_QUIET, "linger.ms": 5, **self._config, **own}, logger=_LOG))
        self._call("starting transactions", lambda p: p.init_transactions(3 * self._timeout))

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; asked once. Raises ServiceError where it does not exist."""
        if topic not in self._partitions:
            metadata = self._call("reading topics", lambda p: p.list_topics(topic, timeout=self._timeout)).topics[topic]
            if metadata.error is not None:
                raise _service_error(f"topic {topic}", metadata.error, self._errors)
            self._partitions[topic] = len(metadata.partitions)
        return self._partitions[topic]

    def send(self, record: Record) -> None:
        """Add a record to the transaction, which begins with it. Waits while the producer's buffer is full."""
        self._begin()
        deadline = self._clock() + self._timeout
        while True:
            try:
                self._call(f"a change for {record.topic}", lambda p: _produce(p, record))
                return
            except BufferError:
                if self._clock() > deadline:
                    raise ServiceError(f"Kafka takes no records of {record.topic}: its buffer stays full") from None
                self._call("waiting for room", lambda p: p.poll(_POLL_SECONDS))

    def send_all(self, records: Iterable[Record]) -> None:
        """As `send`, for many at once, in their order."""
        self._begin()
        producer = self._producer
        if producer is None:
            raise ServiceError("Kafka: the producer is closed")
        produce = producer.produce
        record: Record | None = None
        try:
            for record in records:
                try:
                    produce(record.topic, record.value, record.key, record.partition)
                except BufferError:
                    self.send(record)
        except KafkaException as exception:
            where = "Kafka" if record is None else record.topic
            raise self._explain(f"a change for {where}", self._cause(exception.args[0])) from exception
        # What was delivered meanwhile is let go.
        self._call("sending changes", lambda p: p.poll(0))

    def end(self) -> None:
        """Commit everything sent since the last commit. All or nothing."""
        self._begin()
        deadline = self._clock() + self._timeout
        while True:
            try:
                self._call("committing a transaction", lambda p: p.commit_transaction(self._timeout))
                self._began = None
                return
            except _RetryError as error:
                if self._clock() > deadline:
                    raise ServiceError(str(error)) from error

    def close(self) -> None:
        """Give up what is not committed. A second agent would end our transaction anyway, so errors do not matter."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            if self._began is not None:
                producer.abort_transaction(_ABORT_SECONDS)
            producer.purge()
            producer.poll(0)
        except KafkaException as error:
            _LOG.info("a transaction is left for the next start to abort: %s", error.args[0].str())
        self._began = None

    def _begin(self) -> None:
        if self._began is None:
            self._refused = None
            self._call("beginning a transaction", lambda p: p.begin_transaction())
            self._began = self._clock()

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None and self._refused is None:
            self._refused = error
            _LOG.warning("Kafka refused a record of %s: %s", message.topic(), error.str())

    def _call(self, doing: str, action: Callable[[Producer], T]) -> T:
        if self._producer is None:
            raise ServiceError("Kafka: the producer is closed")
        try:
            return action(self._producer)
        except KafkaException as exception:
            raise self._explain(doing, self._cause(exception.args[0])) from exception

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

    def _explain(self, doing: str, error: KafkaError) -> Exception:
        if error.code() in _FENCED and not self._timed_out():
            return FencedError(
                f"another agent started as {self._id}: this one may publish nothing more. "
                "Run one agent per Cassandra node and topic prefix"
            )
        if error.retriable() and not error.txn_requires_abort():
            return _RetryError(f"Kafka: {doing}: {error.str()}{self._errors}")
        if self._refused is not None:
            doing = f"{doing} (a record was refused: {self._refused.str()})"
        return _service_error(doing, error, self._errors)

    def _timed_out(self) -> bool:
        """Whether Kafka has ended our transaction by its time limit, which looks as if we had been fenced."""
        return self._began is not None and self._clock() - self._began >= self._timeout


class KafkaPublisher(KafkaTransactions):
    """Publishes records and offsets in transactions of `<prefix>.<host id>`, otherwise as KafkaTransactions."""

    def __init__(
        self,
        config: Config,
        *,
        prefix: str,
        cluster: str,
        host: str,
        clock: Clock,
        timeout: int = 10,
    ) -> None:
        super().__init__(config, f"{prefix}.{host}", clock=clock, timeout=timeout)
        self._prefix = prefix
        self._topic = internal_topic(prefix, Internal.OFFSETS)
        self._history_topic = internal_topic(prefix, Internal.SCHEMA_HISTORY)
        self._key = offsets_key(cluster, host)
        self._cluster, self._host = cluster, host
        self._lots: dict[LotKey, Parked] = {}

    def start(self) -> Resume:
        """Fence an older agent, end its transaction, and read how far it came (contracts.md 1, "Start").

        Raises FencedError, ServiceError, OffsetsError.
        """
        self.open()
        found = read_to_end(self._config, self._topic, self._partition(self._topic))
        resume = read_offsets(self._cluster, self._host, ((record.key, record.value) for record in found))
        self._lots = {lot.key: lot for lot in resume.parked}
        return resume

    def history(self) -> tuple[HistoryRecord, ...]:
        """This host's schema history, as far as it is committed. Raises ServiceError, HistoryError."""
        found = read_to_end(self._config, self._history_topic, self._partition(self._history_topic))
        return read_history(self._host, ((record.key, record.value) for record in found if record.key is not None))

    def note(self, which: Internal, key: bytes, value: bytes | None) -> None:
        """Add a record, or a tombstone, of an internal topic to the transaction, in this host's partition of it."""
        topic = internal_topic(self._prefix, which)
        where = self._partition(topic)
        if value is not None:
            self.send(Record(topic, where, key, value))
            return
        self._begin()
        self._call("a tombstone", lambda p: p.produce(topic, key=key, partition=where))

    def commit(self, resume: Resume, history: Sequence[HistoryRecord] = ()) -> None:
        """Commit everything sent since the last commit together with the schema history that it rests on, and with
        how far it goes. All or nothing."""
        self._begin()
        for record in history:
            self.note(Internal.SCHEMA_HISTORY, history_key(self._host, record), encode_history(record))
        self._note_parked(resume.parked)
        self.note(Internal.OFFSETS, self._key, encode_offsets(resume))
        self.end()

    def forget(self) -> None:
        """Commit a tombstone in the place of the host's offsets record."""
        self._note_parked(())
        self.note(Internal.OFFSETS, self._key, None)
        self.end()

    def _note_parked(self, lots: Iterable[Parked]) -> None:
        """What is new of them, and tombstones of those that are no more. A transaction that fails ends this publisher,
        so that what was noted last is what is committed."""
        present = {lot.key: lot for lot in lots}
        for key in self._lots.keys() - present.keys():
            self.note(Internal.OFFSETS, parked_key(self._cluster, self._host, key), None)
        for key, lot in present.items():
            if self._lots.get(key) != lot:
                self.note(Internal.OFFSETS, parked_key(self._cluster, self._host, key), encode_parked(lot))
        self._lots = present

    def _partition(self, topic: str) -> int:
        return host_partition(self._host, self.partitions(topic))


class _RetryError(ServiceError):
    """The same call may succeed when it is made again."""


def _produce(producer: Producer, record: Record) -> None:
    producer.produce(record.topic, value=record.value, key=record.key, partition=record.partition)
    producer.poll(0)


class KafkaLog:
    """Appends to a topic of one partition with an idempotent producer, each record acknowledged before the next.

    Nothing connects before the first record. After an error the next record goes through a new producer.
    """

    def __init__(self, config: Config, topic: str, timeout: int = 10) -> None:
        self._topic = topic
        self._timeout = timeout
        self._errors = _Errors()
        own = {"enable.idempotence": True, "message.timeout.ms": timeout * 1000, "error_cb": self._errors}
        self._config: dict[str, Any] = {**_QUIET, **config, **own}
        self._producer: Producer | None = None

    def append(self, key: bytes, value: bytes) -> None:
        """Append one record and wait until Kafka has it. Raises ServiceError."""
        producer, self._producer = self._producer, None
        if producer is None:
            producer = _made(lambda: Producer(self._config, logger=_LOG))
        results: list[KafkaError | None] = []
        try:
            producer.produce(
                self._topic, value=value, key=key, partition=0, on_delivery=lambda error, _: results.append(error)
            )
            producer.flush(self._timeout + 1)
        except (KafkaException, BufferError) as error:
            raise ServiceError(f"Kafka: a record for {self._topic}: {redact(str(error))}{self._errors}") from error
        if not results:
            raise ServiceError(f"Kafka: {self._topic} does not answer in {self._timeout} s{self._errors}")
        if results[0] is not None:
            raise _service_error(f"a record for {self._topic}", results[0], self._errors)
        self._producer = producer


class KafkaTopics:
    """Creates what is missing of the topics that we need, and says how many partitions they have."""

    def __init__(self, config: Config, options: TopicOptions, *, create: bool = True, timeout: int = 10) -> None:
        self._options = options
        self._create = create
        self._timeout = timeout
        self._errors = _Errors()
        own: dict[str, Any] = {"error_cb": self._errors}
        self._client = _made(lambda: AdminClient({**_QUIET, **config, **own}, logger=_LOG))

    def ensure_internal(self, which: Collection[Internal]) -> None:
        """Make sure of these internal topics. Raises SettingsError, ServiceError."""
        topics, brokers = self._there()
        self._ensure([internal_plan(self._options, one) for one in which], topics, brokers)

    def ensure_table(self, topic: str) -> int:
        """Make sure of a table's topic; its partitions. Raises SettingsError, ServiceError."""
        topics, brokers = self._there()
        self._ensure([table_plan(self._options, topic)], topics, brokers)
        for attempt in stamina.retry_context(
            on=_NotThereError, timeout=self._timeout, attempts=None, wait_initial=0.01, wait_max=0.2, wait_jitter=0.01
        ):
            with attempt:
                topics, _ = self._there()
                if not topics.get(topic):
                    raise _NotThereError(f"Kafka: topic {topic} was created, but no broker shows it")
        return topics[topic]

    def survey(self) -> tuple[dict[str, int], int]:
        """Topics with their partitions, and the number of brokers. Raises ServiceError."""
        return self._there()

    def problems(self, topics: Mapping[str, int]) -> list[str]:
        """What forbids using these topics, given with their partitions, as ours. Raises ServiceError."""
        if not topics:  # librdkafka refuses to be asked about nothing
            return []
        internal = {plan.name: plan for plan in (internal_plan(self._options, one) for one in Internal)}
        plans = {name: internal.get(name) or table_plan(self._options, name) for name in topics}
        asked = self._client.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, name) for name in plans])
        found: list[str] = []
        for resource, future in asked.items():
            try:
                actual = {name: str(entry.value) for name, entry in future.result(self._timeout + 5).items()}
            except KafkaException as error:
                raise _service_error(f"settings of topic {resource.name}", error.args[0], self._errors) from error
            found += plans[resource.name].problems(topics[resource.name], actual)
        return found

    def _there(self) -> tuple[dict[str, int], int]:
        """Topics with their partitions, and the number of brokers."""
        try:
            metadata = self._client.list_topics(timeout=self._timeout)
        except KafkaException as error:
            self._client.poll(0)  # calls error_cb, which knows why
            raise _service_error("listing topics", error.args[0], self._errors) from error
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}, len(metadata.brokers)

    def _ensure(self, plans: Iterable[TopicPlan], there: Collection[str], brokers: int) -> None:
        missing = [plan for plan in plans if plan.name not in there]
        if missing and not self._create:
            names = ", ".join(plan.name for plan in missing)
            raise SettingsError(
                f"topics.create is false, and these topics are missing: {names}; `tailrace topics plan` prints them"
            )
        if not missing:
            return
        topics = [_new_topic(plan, brokers) for plan in missing]
        # Another agent may create the same topic meanwhile; that is as good as ours.
        for name, future in self._client.create_topics(topics, operation_timeout=self._timeout).items():
            try:
                future.result(self._timeout + 5)
                _LOG.info("created topic %s", name)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise _service_error(f"creating topic {name}", error.args[0], self._errors) from error


def _new_topic(plan: TopicPlan, brokers: int) -> NewTopic:
    return NewTopic(plan.name, plan.partitions, plan.replication(brokers), config=dict(plan.settings(brokers)))


class _NotThereError(ServiceError):
    """A topic that was just created is not known to the broker that was asked."""
