"""Single records of Kafka, looked up by their places."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace_common.closing import Closing
from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, FirstContact, made, service_error
from tailrace_common.kafka.reader import READING, passes
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import ServiceError

_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
# librdkafka's own error codes are documented, in spite of the underscore.
_AT_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001


class RecordFetcher(Closing):
    """Single records of Kafka by their places, for what was set aside without its bytes.

    Reads one record at a time, read_committed, in no group. It connects when it is first asked.
    """

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float = _SECONDS) -> None:
        """`config` is librdkafka's; `timeout` is how long a record may take, in seconds."""
        self._config = config
        self._timeout = timeout
        self._errors = ClientErrors()
        self._contact = FirstContact(config, self._errors, lambda: self._consumer().poll(0))
        self._client: Consumer | None = None
        self._partitions: dict[str, frozenset[int]] = {}

    def value(self, topic: str, partition: int, offset: int) -> bytes | None:
        """The value of the record there; None where Kafka has none there, or no longer. Raises ServiceError."""
        consumer = self._consumer()
        if not self._is_there(consumer, topic, partition):
            return None
        consumer.assign([TopicPartition(topic, partition, offset)])
        try:
            return self._read(consumer, topic, partition, offset)
        finally:
            consumer.unassign()  # else all records behind it would be fetched, too

    def _read(self, consumer: Consumer, topic: str, partition: int, offset: int) -> bytes | None:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            message: Any = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value: bytes | None = message.value() if message.offset() == offset else None
                return value
            if error.code() == _AT_END:
                return None
            if not passes(error, self._errors):
                raise service_error(f"reading {topic}", error, self._errors)
        raise ServiceError(
            f"Kafka: {topic}, partition {partition}: offset {offset} was not read within {self._timeout:g} s"
            f"{self._errors}"
        )

    def _is_there(self, consumer: Consumer, topic: str, partition: int) -> bool:
        """Of what is not there librdkafka's consumer says nothing: it waits."""
        if topic not in self._partitions:
            try:
                listed = self._contact.ask(lambda seconds: consumer.list_topics(topic, timeout=seconds), self._timeout)
            except KafkaException as error:
                consumer.poll(0)  # calls error_cb, which knows why
                raise service_error(f"asking for {topic}", error.args[0], self._errors) from error
            metadata = listed.topics[topic]
            if metadata.error is not None:
                return False
            self._partitions[topic] = frozenset(metadata.partitions)
        return partition in self._partitions[topic]

    def close(self) -> None:
        """Leave Kafka."""
        if self._client is not None:
            self._client.close()

    def _consumer(self) -> Consumer:
        if self._client is None:
            config: dict[str, Any] = {"group.id": "tailrace-letters", **QUIET, **self._config, **READING}
            with_callbacks = {**config, "error_cb": self._errors}
            self._client = made(lambda: Consumer(with_callbacks, logger=LOG))
        return self._client
