"""Records of Kafka looked up: single ones by their places, and the last of some topics."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tailrace_common.closing import Closing
from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, FirstContact, made, service_error
from tailrace_common.kafka.reader import READING, Record
from tailrace_common.kafka.topics import StartOffsets
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.topics import KafkaPartition

_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.5
# librdkafka's own error codes are documented, in spite of the underscore.
_AT_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
_RECENT_POLL_SECONDS: Final = 0.2
_MARKS: Final = 2
"""Offsets looked back over for each record wanted: transactions end with a mark, which has one too."""


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
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            message: Any = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            trouble = message.error()
            if trouble is None:
                value: bytes | None = message.value() if message.offset() == offset else None
                return value
            if trouble.code() == _AT_END:
                return None
            if not trouble.retriable():
                raise service_error(f"reading {topic}", trouble, self._errors)
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


# librdkafka's own error codes are documented, in spite of the underscore.


class RecentRecords:
    """The last records of some topics, for people who look: soon, and rather few of them than late.

    Reads them, read_committed, in no group, on a connection for each look.
    """

    def __init__(self, config: Mapping[str, Scalar], *, timeout: float) -> None:
        """`config` is librdkafka's; `timeout` is how long a look may take, in seconds."""
        self._config = config
        self._timeout = timeout

    def of(self, pattern: str, limit: int) -> list[tuple[KafkaPartition, Record]]:
        """The newest committed records of the topics that match as a whole, the newest first, `limit` at the most.

        Of each partition so many are looked at. What was not read in time is missing. Raises ServiceError.
        """
        offsets = StartOffsets(self._config, timeout=self._timeout)
        partitions = offsets.partitions(pattern)
        ends, firsts = offsets.latest(partitions), offsets.earliest(partitions)
        begins = {
            partition: max(firsts[partition], end - _MARKS * limit)
            for partition, end in ends.items()
            if end > firsts[partition]
        }
        records = self._read(begins, ends) if begins else []
        return sorted(records, key=lambda item: (item[1].timestamp, item[0], item[1].offset), reverse=True)[:limit]

    def _read(
        self, begins: Mapping[KafkaPartition, int], ends: Mapping[KafkaPartition, int]
    ) -> list[tuple[KafkaPartition, Record]]:
        errors = ClientErrors()
        config: dict[str, Any] = {"group.id": "tailrace-recent", **QUIET, **self._config, **READING, "error_cb": errors}
        consumer = made(lambda: Consumer(config, logger=LOG))
        unfinished, records = set(begins), []
        try:
            consumer.assign([TopicPartition(*partition, offset) for partition, offset in begins.items()])
            deadline = time.monotonic() + self._timeout
            while unfinished and time.monotonic() < deadline:
                message: Any = consumer.poll(_RECENT_POLL_SECONDS)
                if message is None:
                    continue
                partition, trouble = (message.topic(), message.partition()), message.error()
                if trouble is None:
                    record = Record(message.offset(), message.timestamp()[1], message.key(), message.value())
                    records.append((partition, record))
                elif trouble.code() != _AT_END and not trouble.retriable():
                    raise service_error(f"reading {partition[0]}", trouble, errors)
                if message.offset() + 1 >= ends[partition]:
                    unfinished.discard(partition)
        finally:
            consumer.close()
        return records
