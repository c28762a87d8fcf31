"""What must be there before a table's first change: its topic, its shape in `<prefix>.schemas`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from tailrace.publish.routing import assign_topics
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.table import Table


class Topics(Protocol):
    """Who creates topics."""

    def ensure_table(self, topic: str) -> int:
        """Create a table's topic where it is missing; its partitions. Raises ServiceError, SettingsError."""

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic: its max.message.bytes."""


class Log(Protocol):
    """An acknowledged append."""

    def append(self, key: bytes, value: bytes) -> object:
        """Append and wait. Raises ServiceError."""


def last_definitions(announced: Mapping[bytes, SchemaEntry]) -> dict[UUID, Table]:
    """The definition that `.schemas` has last of each table id: its newest (contracts.md 3, "Framing")."""
    entries = sorted(announced.values(), key=lambda entry: entry.announced)
    return {entry.table.id: entry.table for entry in entries if entry.part == "value"}


class SchemaDestinations:
    """The Destinations of a router, over what `<prefix>.schemas` had at the start."""

    def __init__(self, prefix: str, topics: Topics, log: Log, announced: Mapping[bytes, SchemaEntry]) -> None:
        self._prefix = prefix
        self._topics = topics
        self._log = log
        self._announced = set(announced)
        self._taken = {entry.topic: str(entry.table) for entry in announced.values()}
        values = sorted(
            (entry for entry in announced.values() if entry.part == "value"), key=lambda entry: entry.announced
        )
        self._newest = {entry.table.id: entry.schema_id for entry in values}

    def topic(self, table: Table) -> str:
        """The topic that `.schemas` has for the table's name, else one that collides with none."""
        # By name and not by id: a table that was dropped and made again keeps its topic.
        for topic, name in self._taken.items():
            if name == str(table):
                return topic
        name = assign_topics(self._prefix, (table,), self._taken)[table.id]
        self._taken[name] = str(table)
        return name

    def partitions(self, topic: str) -> int:
        """Create the topic where it is missing; its partitions."""
        return self._topics.ensure_table(topic)

    def limit(self, topic: str) -> int:
        """The most bytes of a batch of the topic."""
        return self._topics.limit(topic)

    def announce(self, table_id: UUID, schemas: list[tuple[bytes, bytes]], *, newest: bool = False) -> None:
        """Append what was not announced yet, acknowledged; the value's schema, the first, comes last.

        The `newest` definition of a table is appended again unless it is the last of the table's records. Only records
        count that were read at the start or appended here. If other agents' records counted, two that lag would
        answer each other for ever (contracts.md 3).
        """
        (value_id, _), *_ = schemas
        # The key's schema first, so that a crash in between leaves the value's to be announced, and with it the order.
        for key, value in reversed(schemas):
            again = newest and key == value_id and self._newest.get(table_id) != value_id
            if again or key not in self._announced:
                self._log.append(key, value)
                self._announced.add(key)
                if key == value_id:
                    self._newest[table_id] = value_id
