"""The schema history of a running agent: kept current from the live cluster, by the log's own DDL and by events."""

from __future__ import annotations

import logging
import threading
from typing import Final, Protocol

from tailrace.history.schema import SchemaDifference, SchemaHistory
from tailrace_schemas.definitions import Definitions
from tailrace_schemas.system_tables import system_tables

_LOG: Final = logging.getLogger("tailrace.capture")


class SchemaReader(Protocol):
    """Who reads the cluster's schema. Raises ServiceError while it cannot."""

    def definitions(self) -> Definitions:
        """All tables of all keyspaces, now."""


class LiveSchema:
    """The present history. `hint` may be called from any thread; everything else from the run loop's.

    A definition is replaced when the reader of the log is at the DDL (`refresh`), not when an event tells of it: the
    log's older mutations, unreleased yet, were written under the old one. Events (`hint`) only add new ids (`learn`).
    """

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._hinted = threading.Event()
        self.history = SchemaHistory().merge(system_tables())[0]

    def hint(self) -> None:
        """The schema may have changed."""
        self._hinted.set()

    @property
    def hinted(self) -> bool:
        """Whether there was a hint since the last read."""
        return self._hinted.is_set()

    def refresh(self) -> SchemaDifference:
        """Read the schema and let it hold from here on. Raises ServiceError, then nothing changed."""
        definitions = self._read()
        self.history, difference = self.history.merge(definitions.tables)
        return self._told(definitions, difference)

    def learn(self) -> SchemaDifference:
        """Read the schema and take what is new in it. Raises ServiceError, then nothing changed."""
        definitions = self._read()
        self.history, difference = self.history.learn(definitions.tables)
        return self._told(definitions, difference)

    def _read(self) -> Definitions:
        # Cleared before the read: a change during it hints again, and so does the driver once it is back.
        self._hinted.clear()
        return self._reader.definitions()

    def _told(self, definitions: Definitions, difference: SchemaDifference) -> SchemaDifference:
        for problem in definitions.problems:
            _LOG.warning("no definition: %s", problem)
        if ours := _of_users(difference):
            _LOG.info("schema: %s", ours)
        return difference


def _of_users(difference: SchemaDifference) -> SchemaDifference:
    """Without Cassandra's own tables: nobody changed those, the built-in definitions are only of another release."""
    system = {table.keyspace for table in system_tables()}
    return SchemaDifference(
        *(
            tuple(table for table in tables if table.keyspace not in system)
            for tables in (difference.added, difference.altered, difference.dropped)
        )
    )
