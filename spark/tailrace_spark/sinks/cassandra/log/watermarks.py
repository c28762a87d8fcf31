"""The table that tells readers of log tables how far each log is complete: one row for each, in the logs' keyspace."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from tailrace_schemas.cql.types import quote_identifier
from tailrace_spark.sinks.cassandra.cluster import Batch
from tailrace_spark.sinks.cassandra.store import Store, make_table, require_readable

WATERMARKS: Final = "tailrace_log_watermarks"
_COLUMNS: Final = "table_name text, complete_until timestamp, waits_for text, PRIMARY KEY (table_name)"

Log = tuple[str, str]
"""Keyspace and name of a log table."""


class Watermarks:
    """`<keyspace>.tailrace_log_watermarks`: table_name, complete_until, waits_for.

    A log's `complete_until` never goes back, for readers have gone on by it. Where the log was made again, and is
    empty, its row is removed first. Everything raises ServiceError, and RefusedError where there is no keyspace.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._made: set[str] = set()
        self._written: dict[Log, tuple[int | None, str]] = {}

    def write(self, watermarks: Iterable[tuple[Log, int | None, str]]) -> None:
        """Each log's time (milliseconds since 1970; None: not known) and what it waits for, where they have changed."""
        for log, time, words in watermarks:
            former = self._former(log)
            newest = max((candidate for candidate in (time, former[0]) if candidate is not None), default=None)
            if (newest, words) != former:
                self._store.write([Batch(_insert(log[0]), (_row(log[1], newest, words),))])
                self._written[log] = newest, words

    def forget(self, log: Log) -> None:
        """Remove a log's row, before the log is made again."""
        self._written.pop(log, None)
        statement = f"DELETE FROM {_name(log[0])} WHERE table_name = ?"  # noqa: S608 - names are quoted
        self._store.write([Batch(statement, ((log[1].encode(),),))])

    def make(self, keyspace: str) -> None:
        """Make the table of a keyspace: before its first log, whose readers ask for it.

        Raises SettingsError where another version made it.
        """
        if keyspace in self._made:
            return
        require_readable(self._store, keyspace, WATERMARKS)
        if not self._store.columns(keyspace, WATERMARKS):
            make_table(self._store, keyspace, WATERMARKS, _COLUMNS)
        self._made.add(keyspace)

    def look_again(self) -> None:
        """What the cluster has may have changed."""
        self._made.clear()
        self._written.clear()

    def _former(self, log: Log) -> tuple[int | None, str]:
        if log not in self._written:
            self.make(log[0])
            query = (
                f"SELECT toUnixTimestamp(complete_until), waits_for FROM {_name(log[0])} "  # noqa: S608 - names are quoted
                "WHERE table_name = %s"
            )
            rows = self._store.select(query, (log[1],))
            self._written[log] = (rows[0][0], rows[0][1] or "") if rows else (None, "")
        return self._written[log]


def _name(keyspace: str) -> str:
    return f"{quote_identifier(keyspace)}.{WATERMARKS}"


def _insert(keyspace: str) -> str:
    return f"INSERT INTO {_name(keyspace)} (table_name, complete_until, waits_for) VALUES (?, ?, ?)"  # noqa: S608


def _row(table: str, time: int | None, words: str) -> tuple[bytes | None, ...]:
    return table.encode(), None if time is None else struct.pack(">q", time), words.encode()
