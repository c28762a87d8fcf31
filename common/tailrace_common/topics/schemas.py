"""The reader of `<prefix>.schemas`: schema ids to what decodes a message, kept current by reading on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tailrace_common.closing import Closing
from tailrace_common.kafka import DEFAULT_TIMEOUT_SECONDS, PartitionReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.topics.generations import PartitionSource
from tailrace_schemas.avro import SchemaEntry, entry_from_record
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.topics import Internal, internal_topic

_LOG = logging.getLogger("tailrace.schemas")


class SchemaReader(Closing, Mapping[bytes, SchemaEntry]):
    """Every published schema by its id, the 8 bytes in a message's frame, or the 4 of a registry.

    A look-up of an unknown id reads the topic on to its end before it fails with KeyError. A schema is published before
    the first message that uses it (contracts.md 3). An id that is announced again gets the later offset in `announced`.
    Its other fields stay the same objects for as long as the reader lives. A malformed record is skipped with one
    warning: messages that name its id stay undecodable, all others are read. One thread at a time; nothing connects
    before the first look-up. Reading raises ServiceError.
    """

    def __init__(
        self,
        config: Mapping[str, Scalar],
        prefix: str,
        *,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        partition: PartitionSource | None = None,
    ) -> None:
        """`config` is librdkafka's; `timeout` is how long, in seconds, a read may stand still.

        `partition` is read in place of the topic's, and closed with this.
        """
        self._reader = partition or PartitionReader(
            config, internal_topic(prefix, Internal.SCHEMAS), 0, timeout=timeout
        )
        self._entries: dict[bytes, SchemaEntry] = {}
        self.malformed = 0
        """Records that were skipped."""

    def refresh(self) -> None:
        """Read the topic on to the end it has now."""
        for record in self._reader.read_to_end():
            if record.key is None or record.value is None:
                continue
            existing = self._entries.get(record.key)
            if existing is not None:
                self._entries[record.key] = replace(existing, announced=record.offset)
                continue
            try:
                entry = entry_from_record(record.key, record.value)
                self._entries[record.key] = replace(entry, announced=record.offset)
            except CorruptError as error:
                self.malformed += 1
                _LOG.warning(
                    "%s: the record at offset %d cannot be read as a schema (%s). It is skipped; messages that name "
                    "the schema id %s cannot be decoded until an agent announces that schema again",
                    *(self._reader, record.offset, error, record.key[:16].hex()),
                )

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        entry = self._entries.get(schema_id)
        if entry is None:
            self.refresh()
            entry = self._entries[schema_id]
        return entry

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Leave the topic."""
        self._reader.close()
