"""The last records of some topics, for people who look: soon, and rather few of them than late."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tailrace_common.kafka.client import LOG, QUIET, ClientErrors, made, service_error
from tailrace_common.kafka.reader import READING, Record
from tailrace_common.kafka.start_offsets import StartOffsets
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.topics import KafkaPartition

_POLL_SECONDS: Final = 0.2
_MARKS: Final = 2
"""Offsets looked back over for each record wanted: transactions end with a mark, which has one too."""
# librdkafka's own error codes are documented, in spite of the underscore.
_AT_END: Final = KafkaError._PARTITION_EOF  # noqa: SLF001


class RecentRecords:
    """Reads them, read_committed, in no group, on a connection for each look."""

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
                message: Any = consumer.poll(_POLL_SECONDS)
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
