"""Keyspaces that a stream writes, as their readers have them: tables in other keyspaces, and log tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from uuid import uuid4

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.query import ordered_dict_factory

from examples.log_reader.reader import write_time
from examples.log_reader.replication import Replicator
from tailrace.local import LocalCassandra
from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.cql.values import codec
from tailrace_schemas.streams import stream_for
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tests.integration.agents import cql, create_keyspace
from tests.integration.feed import GENERATION_AT, generation_of
from tests.oracle.comparison import Row, ask

SECONDS = 60


class _Keyspace:
    """A new one that a sink of a type writes."""

    def __init__(self, node: LocalCassandra, stack: ExitStack, kind: str) -> None:
        self.keyspace = f"ks_{uuid4().hex[:12]}"
        self.session: Session = stack.enter_context(cql(node, seconds=SECONDS))
        create_keyspace(self.session, self.keyspace)
        stack.callback(self.session.execute, f"DROP KEYSPACE {self.keyspace}")
        self.section: Mapping[str, object] = {
            "type": kind, "contact_points": [node.address], "port": node.port, "keyspace": self.keyspace,
            "request_timeout_seconds": SECONDS,
        }  # fmt: skip

    def has(self, name: str) -> bool:
        """Whether there is such a table."""
        query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        return self.session.execute(query, (self.keyspace, name)).one() is not None


class OtherKeyspace(_Keyspace):
    """Tables like the source's."""

    def __init__(self, node: LocalCassandra, stack: ExitStack) -> None:
        super().__init__(node, stack, "cassandra")

    def arrived(self, published: int) -> bool:  # noqa: ARG002 - it is a Target's
        return True

    def rows(self, table: Table) -> list[Row]:
        if not self.has(table.name):
            return []
        [answer] = ask(self.session, [replace(table, keyspace=self.keyspace)])
        return list(answer.rows)

    def require(self, published: int) -> None:
        """What its rows show is all."""


class LogTable(_Keyspace):
    """A log table, and what the example of a reader makes of it: the rows of a table that it keeps.

    Each change is one row of the log, as those of `Feed` are: alone in its mutation, written at a time of its own.
    `name` is the table's.
    """

    def __init__(self, node: LocalCassandra, stack: ExitStack, name: str) -> None:
        super().__init__(node, stack, "log-tables")
        self._name = name
        self._replicated: set[tuple[bytes, Any]] = set()
        self._replicate: Replicator | None = None

    def arrived(self, published: int) -> bool:
        return len(self._log()) >= published

    def rows(self, table: Table) -> list[Row]:
        if self._replicate is None:
            self._replicate = self._replicator(table)
        for row in self._log():
            place = row["cdc$stream_id"], row["cdc$time"]
            if place not in self._replicated:
                self._replicate([row])
                self._replicated.add(place)
        [answer] = ask(self.session, [replace(table, keyspace=self.keyspace)])
        return list(answer.rows)

    def require(self, published: int) -> None:
        log = self._log()
        times = Counter((row["cdc$stream_id"], row["cdc$time"]) for row in log)
        assert len(times) == published
        assert set(times.values()) == {1}
        assert len({write_time(row) for row in log}) == published
        assert {(row["cdc$batch_seq_no"], row["cdc$end_of_batch"]) for row in log} == {(0, True)}
        assert [row for row in log if row["cdc$stream_id"] != _stream_of(row)] == []

    def _log(self) -> list[Mapping[str, Any]]:
        """All rows of the log."""
        if not self.has(name := f"{self._name}_scylla_cdc_log"):
            return []
        profile = self.session.execution_profile_clone_update(EXEC_PROFILE_DEFAULT, row_factory=ordered_dict_factory)
        return list(self.session.execute(f"SELECT * FROM {self.keyspace}.{name}", execution_profile=profile))

    def _replicator(self, table: Table) -> Replicator:
        """Of a new table of this definition."""
        columns = ", ".join(f"{column.name} {column.type}" for column in (*table.key, *table.columns))
        keys = ", ".join(column.name for column in table.key)
        self.session.execute(f"CREATE TABLE {self.keyspace}.{table.name} ({columns}, PRIMARY KEY ({keys}))")
        return Replicator(self.session, self.session.cluster.metadata.keyspaces[self.keyspace].tables[table.name])


def _stream_of(row: Mapping[str, Any]) -> bytes:
    """The stream that is to have a row of the log, whose partition key is the int `id`."""
    return stream_for(generation_of(GENERATION_AT), token(codec(CqlType("int")).encode(row["id"]))).value
