"""Topics as the agent needs them: created, compared with what they should be, and appended to with an
acknowledgement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, Protocol
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # its __all__ forgets it
from confluent_kafka.cimpl import NewTopic

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Config, made, service_error
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.secrets import redact
from tailrace_common.settings import TopicSettings
from tailrace_schemas.avro import SchemaEntry, announced_topics
from tailrace_schemas.errors import RecordTooLargeError, RefusedError, ServiceError, SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import (
    Internal,
    TopicPlan,
    chosen_topic,
    internal_topic,
    retention_of,
)

_RECREATED: Final = (
    "was deleted under this agent: its earlier records are lost to readers that had not read them; created it again, "
    "and later changes go there"
)
# Somebody has to act before such a topic can be created.
_FORBIDDEN: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.INVALID_PARTITIONS,
        KafkaError.INVALID_CONFIG,
    }
)
_TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
# What a batch of one record has around key and value.
_AROUND: Final = 1024


def log_recreated(topic: str, words: str) -> None:
    """The least that must come of a topic that was deleted and created again."""
    LOG.warning("topic %s %s", topic, words)


class KafkaTopics:
    """Creates what is missing of the topics that we need, and says how many partitions they have."""

    def __init__(
        self,
        config: Config,
        options: TopicSettings,
        *,
        create: bool = True,
        timeout: int = 10,
        recreated: Callable[[str, str], None] = log_recreated,
    ) -> None:
        """`timeout` in seconds. `recreated` takes a topic that was deleted under us and is there again, and words for
        it: its records are lost to its readers."""
        self._options = options
        self._create = create
        self._timeout = timeout
        self._recreated = recreated
        self._counts: dict[str, int] = {}
        self.limits: dict[str, int] = {}
        """max.message.bytes of the topics that were ensured, in bytes."""
        self._maker = TopicMaker(config, timeout)
        self._client = self._maker.client  # a property that librdkafka refuses is said at once

    def ensure_internal(self, internals: Collection[Internal]) -> None:
        """Make sure of these internal topics. Raises SettingsError, ServiceError."""
        topics, brokers = self.survey()
        plans = [self._options.internal_plan(internal) for internal in internals]
        self._ensure(plans, topics, brokers)
        self._verify(plans, topics)

    def ensure_table(self, topic: str) -> int:
        """Make sure of a table's topic; its partitions. Raises SettingsError, ServiceError."""
        topics, brokers = self.survey()
        self._ensure([self._options.table_plan(topic)], topics, brokers)
        if not topics.get(topic):
            # CreateTopics is answered by the controller; the broker that is asked for metadata may learn of the topic
            # later.
            topics[topic] = self._maker.until_shown(topic)
        self._verify((self._options.table_plan(topic),), topics)
        # The first number stays, for require_unchanged: `((token + 2^63) * n) >> 64` gives other partitions for
        # another n, and a table's topic is ensured again with each definition of it.
        _require_same(topic, self._counts.setdefault(topic, topics[topic]), topics[topic])
        return topics[topic]

    def limit(self, topic: str) -> int:
        """The most bytes that a batch of the topic may have, a single record with what is around it too.

        Its max.message.bytes as it was when the topic was ensured, at most that of the settings. Where Kafka does not
        tell it, or the topic was not ensured, that of the settings.
        """
        return self.limits.get(topic, self._options.max_message_bytes)

    def refresh_limits(self, internals: Collection[Internal]) -> None:
        """Note again how large a record these topics take: an owner may have lowered it. What Kafka does not tell stays
        as it was."""
        names = [internal_topic(self._options.prefix, internal) for internal in internals]
        try:
            settings = self._settings_of(names)
        except ServiceError as error:
            # DescribeConfigs needs a right of its own, which an agent can do without.
            LOG.debug("limits of internal topics are taken as they were: %s", error)
            return
        for name, actual in settings.items():
            size = int(actual.get("max.message.bytes", self._options.max_message_bytes))
            self.limits[name] = min(size, self._options.max_message_bytes)

    def require_unchanged(self) -> None:
        """Raise SettingsError where an ensured topic has another number of partitions than it had then.

        The partition of a change depends on it (contracts.md 4). Raises ServiceError where Kafka does not answer.
        """
        counts = self._maker.partitions()
        for topic, initial in self._counts.items():
            _require_same(topic, initial, counts.get(topic) or initial)

    def copies(self) -> dict[str, int]:
        """Topics with the least number of copies that a partition of theirs has. Raises ServiceError."""
        return {
            name: min((len(partition.replicas) for partition in topic.partitions.values()), default=0)
            for name, topic in self._maker.metadata().topics.items()
        }

    def in_sync(self, topics: Iterable[str]) -> dict[str, int]:
        """min.insync.replicas of some topics. Raises ServiceError."""
        names = list(topics)
        settings = self._settings_of(names) if names else {}
        return {name: int(actual["min.insync.replicas"]) for name, actual in settings.items()}

    def retentions(self) -> list[int | None]:
        """How long the topic of each table of ours keeps a change, in milliseconds; None: for ever, or for its key's.

        Raises ServiceError, without the right to ask too.
        """
        prefix = self._options.prefix
        internal = {internal_topic(prefix, kind) for kind in Internal}
        tables = [name for name in self._maker.partitions() if name.startswith(f"{prefix}.") and name not in internal]
        return [retention_of(actual) for actual in self._settings_of(tables).values()] if tables else []

    def survey(self) -> tuple[dict[str, int], int]:
        """Topics with their partitions, and the number of brokers. Raises ServiceError."""
        metadata = self._maker.metadata()
        return {name: len(topic.partitions) for name, topic in metadata.topics.items()}, len(metadata.brokers)

    def problems(self, topics: Mapping[str, int]) -> list[str]:
        """What forbids using these topics, given with their partitions, as ours. Raises ServiceError."""
        if not topics:  # librdkafka refuses to be asked about nothing
            return []
        internal = {plan.name: plan for plan in (self._options.internal_plan(kind) for kind in Internal)}
        plans = {name: internal.get(name) or self._options.table_plan(name) for name in topics}
        problems: list[str] = []
        for name, actual in self._settings_of(plans).items():
            problems += plans[name].problems(topics[name], actual)
        return problems

    def _settings_of(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Every setting of some topics. Raises ServiceError."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
        # By itself the client waits for a minute; a future that is waited for less raises what is no error of Kafka's.
        futures = self._client.describe_configs(resources, request_timeout=self._timeout)
        settings: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            try:
                actual = future.result()
            except KafkaException as error:
                raise service_error(f"settings of topic {resource.name}", error.args[0], self._maker.errors) from error
            settings[str(resource.name)] = {name: str(entry.value) for name, entry in actual.items()}
        return settings

    def _verify(self, plans: Iterable[TopicPlan], existing: Mapping[str, int]) -> None:
        """Raise SettingsError for topics, by whomever they were made, in which changes or their order would be lost;
        note how large a batch each takes. What we have no right to know is taken for right."""
        for plan in plans:
            try:
                # One topic at a time: where one may not be described, the others are verified all the same.
                actual = self._settings_of((plan.name,))[plan.name]
            except ServiceError as error:
                LOG.info(
                    "could not read the configuration of topic %s; using the limits of the settings: %s",
                    plan.name,
                    error,
                )
                continue
            # Not part of the verdict: a smaller topic is usable, and changes that do not fit it are parked
            # (contracts.md 1).
            size = int(actual.pop("max.message.bytes", self._options.max_message_bytes))
            if wrong := plan.problems(existing.get(plan.name, plan.partitions), actual):
                raise SettingsError("; ".join(wrong))
            self.limits[plan.name] = min(size, self._options.max_message_bytes)

    def _ensure(self, plans: Iterable[TopicPlan], existing: Collection[str], brokers: int) -> None:
        missing = [plan for plan in plans if plan.name not in existing]
        if missing and not self._create:
            names = ", ".join(plan.name for plan in missing)
            raise SettingsError(
                f"topics.create is false, and these topics are missing: {names}; `tailrace topics plan` prints them"
            )
        if not missing:
            return
        topics = [
            NewTopic(plan.name, plan.partitions, plan.replication(brokers), config=dict(plan.settings(brokers)))
            for plan in missing
        ]
        for name in self._maker.create(topics, self._refusal):
            if name in self._counts:
                del self._counts[name]  # no change of it is in a partition any more
                self._recreated(name, _RECREATED)

    def _refusal(self, name: str, error: KafkaError) -> ServiceError:
        # Parks the table whose topic it is, and no other; everything else is tried again.
        if error.code() in _FORBIDDEN:
            return RefusedError(name, f"it cannot be created: {redact(error.str())}")
        return service_error(f"creating topic {name}", error, self._maker.errors)


def _require_same(topic: str, initial: int, now: int) -> None:
    if now != initial:
        raise SettingsError(
            f"topic {topic} has {now} partitions, and had {initial} when this agent started. Changes of one key stay "
            "in one partition only as long as that number does not change. Let readers come to the topic's end, then "
            "start all agents of this prefix again, together"
        )


class KafkaLog:
    """Appends to a partition of a topic with an idempotent producer, each record acknowledged before the next.

    Nothing connects before `open` or the first record. After an error the next record goes through a new producer.
    """

    def __init__(
        self, config: Config, topic: str, timeout: int = 10, largest: int = 1_000_000, partition: int = 0
    ) -> None:
        """`timeout` in seconds; `largest` is the most bytes that a record may have."""
        self._topic = topic
        self._partition = partition
        self._timeout = timeout
        self._errors = ClientErrors()
        sizes = {"message.max.bytes": min(largest + _AROUND, 1_000_000_000)}
        # Idempotence makes librdkafka's own retries repeat nothing, and sets acks=all: an append that is acknowledged
        # stays.
        required = {"enable.idempotence": True, "message.timeout.ms": timeout * 1000, "error_cb": self._errors, **sizes}
        self._config: dict[str, Any] = {**QUIET, **config, **required}
        self._producer: Producer | None = None

    def open(self) -> None:
        """Begin to connect; nothing waits. Raises SettingsError.

        Called a tenth of a second before the first record, it saves half a second: at that pace librdkafka asks again
        for its producer's id.
        """
        self._producer = self._producer or self._connected()

    def _connected(self) -> Producer:
        return made(lambda: Producer(self._config, logger=LOG))

    def append(self, key: bytes, value: bytes) -> int:
        """Append one record and wait until Kafka has it; when it did that, in milliseconds. Raises ServiceError, and
        RecordTooLargeError where the topic takes none of that size.

        By the broker's clock where the topic is kept by append time, else by ours.
        """
        # Put back on success only: after a failure its queue may still have the record, which would come after a later
        # one.
        producer, self._producer = self._producer or self._connected(), None
        results: list[tuple[KafkaError | None, int]] = []
        try:
            producer.produce(
                self._topic,
                value=value,
                key=key,
                partition=self._partition,
                on_delivery=lambda error, message: results.append((error, message.timestamp()[1])),
            )
            producer.flush(self._timeout + 1)
        except (KafkaException, BufferError) as refused:
            if isinstance(refused, KafkaException) and refused.args[0].code() in _TOO_LARGE:
                raise self._too_large(key, value) from refused
            raise ServiceError(f"Kafka: a record for {self._topic}: {redact(str(refused))}{self._errors}") from refused
        # flush waits a second longer than message.timeout.ms, and still no delivery report came.
        if not results:
            raise ServiceError(f"Kafka: {self._topic} does not answer in {self._timeout} s{self._errors}")
        error, appended = results[0]
        if error is not None and error.code() in _TOO_LARGE:
            raise self._too_large(key, value)
        if error is not None:
            raise service_error(f"a record for {self._topic}", error, self._errors)
        self._producer = producer
        return appended

    def _too_large(self, key: bytes, value: bytes) -> RecordTooLargeError:
        return RecordTooLargeError(f"Kafka: topic {self._topic} takes no record of {len(key) + len(value)} bytes")


class Topics(Protocol):
    """Who creates topics."""

    def ensure_table(self, topic: str) -> int:
        """Create a table's topic where it is missing; its partitions. Raises ServiceError, SettingsError."""

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic: its max.message.bytes."""


class Log(Protocol):
    """An acknowledged append."""

    def append(self, key: bytes, value: bytes) -> object:
        """Append and wait. Raises ServiceError."""


def last_definitions(announced: Mapping[bytes, SchemaEntry]) -> dict[UUID, Table]:
    """The definition that `.schemas` has last of each table id: its newest (contracts.md 3, "Framing")."""
    entries = sorted(announced.values(), key=lambda entry: entry.announced)
    return {entry.table.id: entry.table for entry in entries if entry.part == "value"}


class SchemaDestinations:
    """The Destinations of a router, over what `<prefix>.schemas` had at the start."""

    def __init__(self, prefix: str, topics: Topics, log: Log, announced: Mapping[bytes, SchemaEntry]) -> None:
        self._prefix = prefix
        self._topics = topics
        self._log = log
        self._announced = set(announced)
        self._assigned = announced_topics(announced.values())
        values = sorted(
            (entry for entry in announced.values() if entry.part == "value"), key=lambda entry: entry.announced
        )
        self._newest = {entry.table.id: entry.schema_id for entry in values}

    def topic(self, table: Table) -> str:
        """The topic that `.schemas` has for the table's name, else one that collides with none."""
        topic = self._assigned[str(table)] = chosen_topic(self._prefix, table, self._assigned)
        return topic

    def partitions(self, topic: str) -> int:
        """Create the topic where it is missing; its partitions."""
        return self._topics.ensure_table(topic)

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic."""
        return self._topics.limit(topic)

    def announce(self, table_id: UUID, schemas: list[tuple[bytes, bytes]], *, newest: bool = False) -> None:
        """Append what was not announced yet, acknowledged; the value's schema, the first, comes last.

        The `newest` definition of a table is appended again unless it is the last of the table's records. Only records
        count that were read at the start or appended here. If other agents' records counted, two that lag would
        answer each other for ever (contracts.md 3).
        """
        (value_id, _), *_ = schemas
        # The key's schema first, so that a crash in between leaves the value's to be announced, and with it the order.
        for key, value in reversed(schemas):
            again = newest and key == value_id and self._newest.get(table_id) != value_id
            if again or key not in self._announced:
                self._log.append(key, value)
                self._announced.add(key)
                if key == value_id:
                    self._newest[table_id] = value_id
