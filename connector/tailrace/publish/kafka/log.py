"""An acknowledged append to a topic that many write and nobody owns: `.schemas`, `.generations`."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Config, made, service_error
from tailrace_common.secrets import redact
from tailrace_schemas.errors import ServiceError


class KafkaLog:
    """Appends to a topic of one partition with an idempotent producer, each record acknowledged before the next.

    Nothing connects before `open` or the first record. After an error the next record goes through a new producer.
    """

    def __init__(self, config: Config, topic: str, timeout: int = 10) -> None:
        self._topic = topic
        self._timeout = timeout
        self._errors = ClientErrors()
        own = {"enable.idempotence": True, "message.timeout.ms": timeout * 1000, "error_cb": self._errors}
        self._config: dict[str, Any] = {**QUIET, **config, **own}
        self._producer: Producer | None = None

    def open(self) -> None:
        """Begin to connect; nothing waits. The first record is acknowledged half a second earlier where this was called
        a tenth before it: the client asks again for its producer's id at that pace. Raises SettingsError."""
        self._producer = self._producer or self._connected()

    def _connected(self) -> Producer:
        return made(lambda: Producer(self._config, logger=LOG))

    def append(self, key: bytes, value: bytes) -> int:
        """Append one record and wait until Kafka has it; when it did that, in milliseconds. Raises ServiceError.

        By the broker's clock where the topic is kept by append time, else by ours.
        """
        producer, self._producer = self._producer or self._connected(), None
        results: list[tuple[KafkaError | None, int]] = []
        try:
            producer.produce(
                self._topic,
                value=value,
                key=key,
                partition=0,
                on_delivery=lambda error, message: results.append((error, message.timestamp()[1])),
            )
            producer.flush(self._timeout + 1)
        except (KafkaException, BufferError) as refused:
            raise ServiceError(f"Kafka: a record for {self._topic}: {redact(str(refused))}{self._errors}") from refused
        if not results:
            raise ServiceError(f"Kafka: {self._topic} does not answer in {self._timeout} s{self._errors}")
        error, appended = results[0]
        if error is not None:
            raise service_error(f"a record for {self._topic}", error, self._errors)
        self._producer = producer
        return appended
