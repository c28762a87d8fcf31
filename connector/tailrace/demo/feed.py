"""The changes as they come out of Kafka; read_committed, every partition from its beginning."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from tailrace.demo.display import Seen
from tailrace_common.kafka import PartitionReader, Record
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import SchemaEntry, decode, entry_from_record
from tailrace_schemas.avro.registry import UnknownSchemaError
from tailrace_schemas.change import Change
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import CorruptError, ServiceError
from tailrace_schemas.topics import Internal, internal_topic

_POLL_SECONDS = 0.2
_Got = tuple[str, int, Record] | ServiceError


class Feed:
    """Follows topics. A thread for each partition puts records into one queue; `take` decodes them."""

    def __init__(self, config: Mapping[str, Scalar], prefix: str, topics: Sequence[str], partitions: int) -> None:
        self._config = config
        self._queue: SimpleQueue[_Got] = SimpleQueue()
        self._stop = threading.Event()
        self._schemas: dict[bytes, SchemaEntry] = {}
        self._schema_reader = PartitionReader(config, internal_topic(prefix, Internal.SCHEMAS), 0)
        self._threads = [
            threading.Thread(target=self._follow, args=(topic, partition), name=f"{topic}[{partition}]", daemon=True)
            for topic in topics
            for partition in range(partitions)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, seconds: float) -> Iterator[Seen]:
        """What has come, in each partition's order; waits at most so long for the first. Raises ServiceError."""
        try:
            got: _Got = self._queue.get(timeout=seconds)
            while True:
                if isinstance(got, ServiceError):
                    raise got
                yield self._seen(*got)
                got = self._queue.get_nowait()
        except Empty:
            return

    def close(self) -> None:
        """End the threads and their connections."""
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._schema_reader.close()

    def _follow(self, topic: str, partition: int) -> None:
        with PartitionReader(self._config, topic, partition) as reader:
            try:
                while not self._stop.is_set():
                    record = reader.poll(_POLL_SECONDS)
                    if record is not None:
                        self._queue.put((topic, partition, record))
            except ServiceError as error:
                self._queue.put(error)

    def _seen(self, topic: str, partition: int, record: Record) -> Seen:
        change = self._decode(record.value or b"")
        return Seen(topic, partition, record.offset, change, key_values(change))

    def _decode(self, message: bytes) -> Change:
        try:
            return decode(message, self._schemas)
        except UnknownSchemaError:  # it was announced before the change was published
            for record in self._schema_reader.read_to_end():
                with suppress(CorruptError):  # one that is no schema is nobody's
                    self._schemas[record.key or b""] = entry_from_record(record.key or b"", record.value or b"")
            return decode(message, self._schemas)


def key_values(change: Change) -> dict[str, object]:
    """The key columns that a change names, as plain values; clustering columns are None where it has none."""
    table = change.table
    types = tuple(column.type for column in table.partition_key)
    parts = split_key(types, change.key or b"")
    clustering = change.clustering or (None,) * len(table.clustering)
    return {
        column.name: None if data is None else codec(column.type).decode(data)
        for column, data in zip(table.key, (*parts, *clustering), strict=True)
    }
