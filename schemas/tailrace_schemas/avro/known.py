"""Schemas as a consumer of its own learns them: fed with the records of `<prefix>.schemas`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tailrace_schemas.avro.registry import SchemaEntry, entry_from_record
from tailrace_schemas.errors import CorruptError


class Schemas(Mapping[bytes, SchemaEntry]):
    """Every schema that was added, by its id: the 8 bytes that a message names it by, or a registry's 4.

    `skipped` counts the records that are no schemas; whoever wrote them, they stop nothing.
    """

    def __init__(self) -> None:
        self._entries: dict[bytes, SchemaEntry] = {}
        self.skipped = 0

    def add(self, key: bytes | None, value: bytes | None) -> bool:
        """Take one record of the topic; whether it is a schema."""
        if key is None or value is None:
            return False
        try:
            self._entries.setdefault(key, entry_from_record(key, value))
        except CorruptError:
            self.skipped += 1
            return False
        return True

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        return self._entries[schema_id]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
