"""An acknowledged append to a topic that many write and nobody owns: `.schemas`, `.generations`, losses."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, Config, made, service_error
from tailrace_common.secrets import redact
from tailrace_schemas.errors import RecordTooLargeError, ServiceError

_TOO_LARGE: Final = (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE)
# What a batch of one record has around key and value.
_AROUND: Final = 1024


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
