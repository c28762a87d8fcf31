"""Tables with cdc whose writes go past the commit log: nothing of them comes to cdc_raw, and no error says so."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tailrace.history.objects import NodeState
from tailrace.history.rows import Name
from tailrace_schemas.table import Table

# As DESCRIBE writes options; in a string of the user's the quotes would be doubled.
_OPTION: Final = re.compile(r"\b(transactional_mode|transactional_migration_from|replication_type) = '(\w+)'")
_NEITHER: Final = ("off", "none")
_MOST: Final = 3


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
    reasons = [f"{bypass.table} ({bypass.reason})" for bypass in bypassing[:_MOST]]
    left_out = f" and {len(bypassing) - _MOST} more" if len(bypassing) > _MOST else ""
    cures = "; ".join(dict.fromkeys(bypass.cure for bypass in bypassing[:_MOST]))
    return (
        f"nothing is captured of {', '.join(reasons)}{left_out}: such writes never reach the commit log, nor cdc_raw",
        f"{cures}. What was written until then comes by a snapshot alone. Or leave such tables out by tables.exclude",
    )
