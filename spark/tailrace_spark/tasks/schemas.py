"""The schemas of `.schemas` as tasks get them: a value that can be pickled; entries are made when asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, Self
from uuid import UUID

from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.table import Table
from tailrace_schemas.table_json import table_from_json, table_to_json


@dataclass(frozen=True, slots=True)
class _Published:
    """A SchemaEntry, its table as JSON: compiled classes cannot be pickled."""

    topic: str
    table: str
    table_id: UUID
    avro: str
    part: Literal["value", "key"]
    announced: int


@dataclass(frozen=True)
class TaskSchemas(Mapping[bytes, SchemaEntry]):
    """Every published schema by its id, as SchemaReader has them, complete at the time of the batch."""

    published: Mapping[bytes, _Published]
    _entries: dict[bytes, SchemaEntry] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, entries: Mapping[bytes, SchemaEntry]) -> Self:
        """A copy of these."""
        return cls(
            {
                schema_id: _Published(
                    entry.topic,
                    json.dumps(table_to_json(entry.table)),
                    entry.table.id,
                    entry.avro,
                    entry.part,
                    entry.announced,
                )
                for schema_id, entry in entries.items()
            }
        )

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        entry = self._entries.get(schema_id)
        if entry is None:
            published = self.published[schema_id]
            entry = self._entries[schema_id] = SchemaEntry(
                schema_id=schema_id,
                topic=published.topic,
                table=table_from_json(json.loads(published.table)),
                avro=published.avro,
                part=published.part,
                announced=published.announced,
            )
        return entry

    def newest(self, table: Table) -> Table:
        """The newest definition of a table that has one here."""
        return self[self._newest[table.id]].table

    @cached_property
    def _newest(self) -> Mapping[UUID, bytes]:
        values = [(schema_id, schema) for schema_id, schema in self.published.items() if schema.part == "value"]
        by_announcement = sorted(values, key=lambda value: value[1].announced)
        return {schema.table_id: schema_id for schema_id, schema in by_announcement}

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.published)

    def __len__(self) -> int:
        return len(self.published)

    def __reduce__(self) -> tuple[type[Self], tuple[Mapping[bytes, _Published]]]:
        """Without the entries."""
        return type(self), (self.published,)
