"""What a running agent's schema rests on: the log's DDL, and reads of the cluster; tables whose writes are not
logged.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.history.cells import NEVER
from tailrace.history.objects import NodeState, ObjectChange, Objects, types_of
from tailrace.history.rows import KeyedRow, Name, definitions_of
from tailrace.history.schema import SchemaDifference
from tailrace.schema.ddl_log import WATCHED, Gap
from tailrace.segments.kept import Interest
from tailrace_common.selection import listed
from tailrace_schemas.cql.types import user_types_in
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.system_tables import system_tables
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.capture")
SYSTEM: Final = frozenset(table.keyspace for table in system_tables())
"""Cassandra's own keyspaces."""
# As DESCRIBE writes options; in a string of the user's the quotes would be doubled.
_OPTION: Final = re.compile(r"\b(transactional_mode|transactional_migration_from|replication_type) = '(\w+)'")
_NEITHER: Final = ("off", "none")
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Bypass:
    """A table with cdc whose writes are not logged: why, and what ends that."""

    table: Table
    reason: str
    cure: str


class StatementReader(Protocol):
    """Who reads what DESCRIBE says; see cluster.LiveCluster."""

    def statements(self, keyspaces: Collection[str]) -> Mapping[Name, str]:
        """The CREATE statements of these keyspaces, under (keyspace, ""), and of their tables. Raises ServiceError."""


def read_bypassing(reader: StatementReader, tables: Iterable[Table], state: NodeState) -> tuple[Bypass, ...]:
    """The tables with cdc, of these, whose writes are not logged, by name. Raises ServiceError.

    Cassandra 6 writes by Accord, and with mutation tracking, into journals of their own; by Accord also while a table
    is migrated back. No column of `system_schema` says so in 6.0-alpha2, and DESCRIBE does. Older ones are not asked.
    """
    tracked = sorted((table for table in tables if table.cdc), key=str)
    keyspaces = {table.keyspace for table in tracked}
    statements = reader.statements(keyspaces) if keyspaces and state.metadata is not None else {}
    return tuple(bypass for table in tracked for bypass in _bypasses(table, state, statements))


def _bypasses(table: Table, state: NodeState, statements: Mapping[Name, str]) -> Iterator[Bypass]:
    keyspace = table.keyspace
    if state.keyspaces.get(keyspace, {}).get("durable_writes") is False:
        reason = f"keyspace {keyspace} has durable_writes = false"
        yield Bypass(table, reason, f"ALTER KEYSPACE {keyspace} WITH durable_writes = true")
        return
    if _options(statements.get((keyspace, ""), "")).get("replication_type") == "tracked":
        reason = f"keyspace {keyspace} has replication_type = 'tracked'"
        yield Bypass(table, reason, f"ALTER KEYSPACE {keyspace} WITH replication_type = 'untracked'")
        return
    options = _options(statements.get((keyspace, table.name), ""))
    mode, previous = options.get("transactional_mode", "off"), options.get("transactional_migration_from", "none")
    finish = f"nodetool consensus_admin finish-migration {keyspace} {table.name}"
    if mode not in _NEITHER:
        cure = f"ALTER TABLE {table} WITH transactional_mode = 'off', then {finish}"
        yield Bypass(table, f"transactional_mode = '{mode}'", cure)
    elif previous not in _NEITHER:
        yield Bypass(table, f"its migration from transactional_mode = '{previous}' is not finished", finish)


def _options(statement: str) -> dict[str, str]:
    return {match[1]: match[2] for match in _OPTION.finditer(statement)}


def bypass_words(bypassing: Sequence[Bypass]) -> tuple[str, str]:
    """What is not captured and why, and what to do, for people."""
    reasons = listed([f"{bypass.table} ({bypass.reason})" for bypass in bypassing], _MOST_NAMED)
    cures = "; ".join(dict.fromkeys(bypass.cure for bypass in bypassing[:_MOST_NAMED]))
    return (
        f"nothing is captured of {reasons}: such writes never reach the commit log, nor cdc_raw",
        f"{cures}. What was written until then comes by a snapshot alone. Or leave such tables out by tables.exclude",
    )


class SchemaReader(StatementReader, Protocol):
    """Who reads the cluster's schema. Raises ServiceError while it cannot."""

    def schema_rows(self) -> Sequence[KeyedRow]:
        """The rows of `system_schema` of all keyspaces, now, with their write times."""

    def node_state(self) -> NodeState:
        """Keyspaces, truncations and epoch, now."""


class SchemaSource(Protocol):
    """The log's DDL in position order; see ddl_log.SchemaLog."""

    @property
    def gaps(self) -> list[Gap]: ...

    @property
    def began(self) -> int | None: ...

    @property
    def read_up_to(self) -> Position | None: ...

    def begin(self, position: Position | None, epoch: int) -> None: ...

    def read(self, until: Position | None) -> list[Entry]: ...

    def sift(self, interest: Callable[[], Interest]) -> None: ...


class ClusterView:
    """The cluster's schema as it was read last. `hint` may be called from any thread."""

    def __init__(self, reader: SchemaReader) -> None:
        self._reader = reader
        self._hinted = threading.Event()
        self.tables: Mapping[UUID, Table] = {}
        self.problems: Mapping[UUID, str] = {}
        """Why tables have no definition, by their ids."""
        self.rows: Sequence[KeyedRow] = ()
        self.state = NodeState()
        self.bypassing: tuple[Bypass, ...] = ()
        """The tables with cdc whose writes never reach the log."""
        self.watched = {table.id: table for table in WATCHED}
        """The tables whose mutations are DDL, with this release's columns."""

    def hint(self) -> None:
        """The schema may have changed."""
        self._hinted.set()

    @property
    def hinted(self) -> bool:
        """Whether there was a hint since the last read."""
        return self._hinted.is_set()

    def read(self) -> None:
        """Read it again. Raises ServiceError, then nothing changed."""
        hinted = self.hinted
        # Cleared before the read: a change during it hints again.
        self._hinted.clear()
        try:
            self._read()
        except ServiceError:
            if hinted:  # what may have changed was not read
                self._hinted.set()
            raise

    def _read(self) -> None:
        state = self._reader.node_state()  # first: the rows are not older than its epoch
        rows = self._reader.schema_rows()
        definitions = definitions_of(rows)
        self.bypassing = read_bypassing(self._reader, definitions.tables, state)
        self.tables, self.rows, self.state = {table.id: table for table in definitions.tables}, rows, state
        self.problems = {problem.id: problem.reason for problem in definitions.problems if problem.id is not None}
        for problem in definitions.problems:
            _LOG.warning(
                "a definition in the schema tables cannot be used; changes of that table are parked: %s", problem
            )
        self.watched = {id: self.widened(table) for id, table in self.watched.items()}

    def present(self) -> dict[Name, tuple[Table, int]]:
        """The tables of users, with their newest write times."""
        written: dict[Name, int] = {}
        for row in self.rows:
            if row.table != "types":
                written[row.owner] = max(row.written, written.get(row.owner, row.written))
        named = (((table.keyspace, table.name), table) for table in self.tables.values())
        return {name: (table, written[name]) for name, table in named if name[0] not in SYSTEM}

    def types_written(self, table: Table) -> int:
        """The newest write time of the user types of a table."""
        used = {user_type.name for user_type in user_types_in(column.type for column in (*table.key, *table.columns))}
        rows = (row for row in self.rows if row.table == "types" and row.owner[0] == table.keyspace)
        return max((row.written for row in rows if row.row["type_name"] in used), default=NEVER)

    def rows_of(self, name: Name) -> list[KeyedRow]:
        """The rows of a table, and of all of its keyspace's types."""
        keyspace, _ = name
        return [row for row in self.rows if row.owner == name or (row.table, row.owner[0]) == ("types", keyspace)]

    def objects(self) -> tuple[Objects, tuple[ObjectChange, ...]]:
        """The keyspaces and types of users."""
        keyspaces = {(name, ""): options for name, options in self.state.keyspaces.items()}
        definitions = {**keyspaces, **types_of(self.rows)}
        return Objects().become({name: definition for name, definition in definitions.items() if name[0] not in SYSTEM})

    def widened(self, built_in: Table) -> Table:
        """One of Cassandra's own tables with the columns that this release has beside those that are built in."""
        read = self.tables.get(built_in.id)
        built_in_names = {column.name_bytes for column in built_in.columns}
        added = (
            () if read is None else tuple(column for column in read.regular if column.name_bytes not in built_in_names)
        )
        return replace(
            built_in, regular=tuple(sorted((*built_in.regular, *added), key=lambda column: column.name_bytes))
        )


def told(difference: SchemaDifference, position: Position | None = None) -> SchemaDifference:
    """Say what changed, without Cassandra's own tables: the built-in ones are only of another release."""
    of_users = SchemaDifference(
        *(
            tuple(table for table in tables if table.keyspace not in SYSTEM)
            for tables in (difference.added, difference.altered, difference.dropped)
        )
    )
    if of_users:
        _LOG.info("schema%s: %s", "" if position is None else f" at {position}", of_users)
    return difference
