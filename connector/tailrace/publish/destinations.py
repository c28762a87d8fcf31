"""What must be in Kafka before a table's first change: its topic, and its shape in `<prefix>.schemas`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final, Protocol

from tailrace.publish.routing import assign_topics
from tailrace_schemas.avro import entry_from_record
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.publish")


class Topics(Protocol):
    """Who creates topics."""

    def ensure_table(self, topic: str) -> int:
        """Create a table's topic where it is missing; its partitions. Raises ServiceError, SettingsError."""


class Log(Protocol):
    """An acknowledged append."""

    def append(self, key: bytes, value: bytes) -> None:
        """Append and wait. Raises ServiceError."""


class SchemaDestinations:
    """The Destinations of a router, over the records that `<prefix>.schemas` had at the start."""

    def __init__(
        self, prefix: str, topics: Topics, log: Log, known: Iterable[tuple[bytes | None, bytes | None]]
    ) -> None:
        self._prefix = prefix
        self._topics = topics
        self._log = log
        self._announced: set[bytes] = set()
        self._taken: dict[str, str] = {}
        for key, value in known:
            self._remember(key, value)

    def _remember(self, key: bytes | None, value: bytes | None) -> None:
        if key is None or value is None:
            return
        try:
            entry = entry_from_record(key, value)
        except (ValueError, KeyError) as error:
            _LOG.warning("a record of %s.schemas is not one of ours: %r", self._prefix, error)
            return
        self._announced.add(key)
        self._taken[entry.topic] = str(entry.table)

    def topic(self, table: Table) -> str:
        """The topic that `.schemas` has for the table's name, else one that collides with none."""
        for topic, name in self._taken.items():
            if name == str(table):
                return topic
        name = assign_topics(self._prefix, (table,), self._taken)[table.id]
        self._taken[name] = str(table)
        return name

    def partitions(self, topic: str) -> int:
        """Create the topic where it is missing; its partitions."""
        return self._topics.ensure_table(topic)

    def announce(self, schemas: list[tuple[bytes, bytes]]) -> None:
        """Append what was not announced yet, acknowledged."""
        for key, value in schemas:
            if key not in self._announced:
                self._log.append(key, value)
                self._announced.add(key)
