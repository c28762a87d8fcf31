"""Topics that a program needs besides those of the contract: made where they are missing, taken as they are else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata  # type: ignore[attr-defined]  # its __all__ forgets it
from confluent_kafka.cimpl import NewTopic

from tailrace_common.backoff import Waits, repeated
from tailrace_common.kafka.client import LOG, AdminConnection, ClientErrors, Config, FirstContact, service_error
from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.topics import TopicPlan

_BROKERS_DEFAULT: Final = -1
_TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001 - librdkafka's own codes are named so
_OF_THE_TOPIC: Final = (KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG)


class InvalidTopicError(SettingsError):
    """Kafka has no topic of such a name, or not with these settings; others can be made."""


class TopicMaker:
    """Connects when first used; `timeout` is how many seconds Kafka may take over anything."""

    def __init__(self, config: Config, timeout: int = 10) -> None:
        self._timeout = timeout
        self._connection = AdminConnection(config)
        self._errors = self._connection.errors
        self._contact = FirstContact(config, self._errors, lambda: self._admin.poll(0))

    def partitions(self) -> dict[str, int]:
        """How many partitions each topic has that is there. Raises ServiceError, SettingsError."""
        topics = metadata_of(self._admin, self._timeout, self._errors, self._contact).topics
        return {name: len(topic.partitions) for name, topic in topics.items()}

    def ensure(self, topic: str, partitions: int, settings: Mapping[str, str], copies: int = _BROKERS_DEFAULT) -> int:
        """Make it with so many partitions and copies, by default as many as the brokers have it, if it is missing.

        How many partitions it has. Raises SettingsError where Kafka will not have such a topic, or this user may not
        make it; ServiceError.
        """
        if count := self.partitions().get(topic):
            return count
        new = NewTopic(topic, partitions, copies, config=dict(settings))
        limits = {"operation_timeout": self._timeout, "request_timeout": self._timeout}
        for future in self._admin.create_topics([new], **limits).values():
            try:
                future.result()
                LOG.info("created topic %s", topic)
            except KafkaException as error:
                cause: KafkaError = error.args[0]
                if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                if cause.retriable() or cause.code() == _TIMED_OUT:
                    raise service_error(f"creating topic {topic}", cause, self._errors) from error
                if cause.code() in _OF_THE_TOPIC:
                    raise InvalidTopicError(f"topic {topic} cannot be created: {redact(cause.str())}") from error
                raise SettingsError(
                    f"topic {topic} is missing and cannot be created: {redact(cause.str())}; make it, or give the right"
                ) from error
        return until_shown(topic, self.partitions, self._timeout)

    def ensure_planned(self, plan: TopicPlan, *, create: bool = True) -> int:
        """As `ensure`, with as many copies as the plan says for the number of brokers. `create`: topics.create."""
        if not create:
            if not (partitions := self.partitions().get(plan.name)):
                raise SettingsError(
                    f"topic {plan.name} is missing, and topics.create is false: `tailrace topics plan` has it"
                )
            return partitions
        brokers = len(metadata_of(self._admin, self._timeout, self._errors, self._contact).brokers)
        return self.ensure(plan.name, plan.partitions, plan.settings(brokers), plan.replication(brokers))

    @property
    def _admin(self) -> AdminClient:
        return self._connection.client()


def metadata_of(client: AdminClient, timeout: int, errors: ClientErrors, contact: FirstContact) -> ClusterMetadata:
    """Topics and brokers. Raises ServiceError, with what the client's connections said last."""
    try:
        return contact.ask(lambda seconds: client.list_topics(timeout=seconds), timeout)
    except KafkaException as error:
        client.poll(0)  # calls error_cb, which knows why
        raise service_error("listing topics", error.args[0], errors) from error


def until_shown(topic: str, partitions: Callable[[], Mapping[str, int]], timeout: int) -> int:
    """How many partitions a topic has that was just created: not every broker knows it at once.

    `partitions` asks for those of all topics, again and again for `timeout` seconds; then ServiceError is raised.
    """

    def shown() -> int:
        count = partitions().get(topic, 0)
        if not count:
            raise _NotThereError(f"Kafka: topic {topic} was created, but no broker shows it")
        return count

    return repeated(shown, Waits(0.01, 0.2), lambda error: isinstance(error, _NotThereError), seconds=timeout)


class _NotThereError(ServiceError):
    """It is not known to the broker that was asked."""
