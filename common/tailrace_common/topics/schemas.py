"""The reader of `<prefix>.schemas`: schema ids to what decodes a message, kept current by reading on."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from tailrace_common.closing import Closing
from tailrace_common.kafka import DEFAULT_TIMEOUT_SECONDS, PartitionReader
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.topics.generations import PartitionSource
from tailrace_common.topics.table_order import Statement, places, statement_of
from tailrace_schemas.avro import SchemaEntry, entry_from_record
from tailrace_schemas.avro.decode import reader_of
from tailrace_schemas.avro.frames import message_schema_id
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.topics import Internal, internal_topic

_LOG = logging.getLogger("tailrace.schemas")


class SchemaReader(Closing, Mapping[bytes, SchemaEntry]):
    """Every published schema by its id, the 8 bytes in a message's frame, or the 4 of a registry.

    A look-up of an unknown id reads the topic on to its end before it fails with KeyError. A schema is published before
    the first message that uses it (contracts.md 3). An id that is announced again gets the later offset in `announced`.
    Its other fields stay the same objects for as long as the reader lives. If `ordered`, of tables that had one name
    all of the earlier one counts as announced before the later one (`table_order`). A malformed record is skipped with
    one warning: messages that name its id stay undecodable, all others are read. One thread at a time; nothing connects
    before the first look-up. Reading raises ServiceError.
    """

    def __init__(
        self,
        config: Mapping[str, Scalar],
        prefix: str,
        *,
        ordered: bool = False,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        partition: PartitionSource | None = None,
        ddl: PartitionSource | None = None,
    ) -> None:
        """`config` is librdkafka's; `timeout` is how long, in seconds, a read may stand still.

        `partition` and `ddl` are read in place of `.schemas` and `.schema-changes`, and closed with this.
        """
        self._reader = partition or PartitionReader(
            config, internal_topic(prefix, Internal.SCHEMAS), 0, timeout=timeout
        )
        self._ddl = ddl or PartitionReader(config, internal_topic(prefix, Internal.SCHEMA_CHANGES), 0, timeout=timeout)
        self._ordered = ordered
        self._entries: dict[bytes, SchemaEntry] = {}
        self._offsets: dict[bytes, tuple[int, int]] = {}
        """Where each schema was announced first, and last."""
        self._statements: dict[UUID, Statement] = {}
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
                self._offsets[record.key] = self._offsets[record.key][0], record.offset
                continue
            try:
                entry = entry_from_record(record.key, record.value)
                self._entries[record.key] = replace(entry, announced=record.offset)
                self._offsets[record.key] = record.offset, record.offset
            except CorruptError as error:
                self.malformed += 1
                _LOG.warning(
                    "%s: the record at offset %d cannot be read as a schema (%s). It is skipped; messages that name "
                    "the schema id %s cannot be decoded until an agent announces that schema again",
                    *(self._reader, record.offset, error, record.key[:16].hex()),
                )

        if self._ordered:
            self._order()

    def _order(self) -> None:
        """Let no table that was dropped count as announced behind the one that has its name now."""
        names: dict[str, list[SchemaEntry]] = {}
        for entry in self._entries.values():
            names.setdefault(str(entry.table), []).append(entry)
        shared = [entries for entries in names.values() if len({entry.table.id for entry in entries}) > 1]
        if not shared:
            return
        # Statements are committed with the changes that follow from them, or before, and read up to their end. So
        # whoever has met a change knows of them.
        for table_id, statement in filter(None, (statement_of(record.value) for record in self._ddl.read_to_end())):
            self._statements[table_id] = max(statement, self._statements.get(table_id, statement))
        for entries in shared:
            announced = ((entry.table.id, self._offsets[entry.schema_id][0]) for entry in entries)
            ranges = places(announced, self._statements)
            for entry in entries:
                begin, end = ranges[entry.table.id]
                offset = max(begin, self._offsets[entry.schema_id][1])
                offset = offset if end is None else min(offset, end - 1)
                if entry.announced != offset:
                    self._entries[entry.schema_id] = replace(entry, announced=offset)

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        entry = self._entries.get(schema_id)
        if entry is None:
            self.refresh()
            entry = self._entries[schema_id]
        return entry

    def decoded(self, message: bytes) -> tuple[SchemaEntry, dict[str, Any]]:
        """The schema and the record of a message. Raises DecodeError."""
        identity = message_schema_id(message)
        try:
            entry = self[identity]
        except KeyError:
            raise CorruptError(f"no schema {identity.hex()} was announced") from None
        return entry, reader_of(entry).record(message)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        """Leave the topics."""
        self._reader.close()
        self._ddl.close()
