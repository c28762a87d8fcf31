"""A node's schema in memory: its rows, and the DDL of its log."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table
from tailrace.history.objects import NodeState, Options
from tailrace.history.rows import KeyedRow, Name
from tailrace.schema.ddl_log import WATCHED, Gap
from tailrace.segments.kept import Interest
from tailrace_schemas.cql.types import user_types_in
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, ColumnKind, Table
from tests.support.capture import MemoryLog, entry_at
from tests.support.kafka import Faults

_SCHEMA_IDS: Final = frozenset(table.id for table in WATCHED)


class MemorySchemaLog:
    """A SchemaSource of MemoryLog, in which every segment is there until it is released. Step: ddl."""

    def __init__(self, log: MemoryLog, faults: Faults) -> None:
        self._log = log
        self._faults = faults
        self.gaps: list[Gap] = []
        self.began: int | None = None
        self.read_up_to: Position | None = None

    def begin(self, at: Position | None, epoch: int) -> None:
        """Read on behind a position."""
        del epoch
        self.read_up_to = at

    def read(self, until: Position | None) -> list[Entry]:
        """All DDL that follows."""
        del until
        self._faults.at("ddl")
        entries: list[Entry] = []
        for segment, payloads in sorted(self._log.segments.items()):
            for number, payload in enumerate(payloads, 1):
                at = Position(1, segment, number)
                if self.read_up_to is not None and at <= self.read_up_to:
                    continue
                self.read_up_to = (
                    at if number < len(payloads) or segment not in self._log.final else Position(1, segment + 1, 0)
                )
                if first_table(payload, self._log.version)[1] in _SCHEMA_IDS:
                    entries.append(entry_at(at, payload, self._log.version))
        return entries

    def sift(self, interest: Callable[[], Interest]) -> None:
        """Every segment of a MemoryLog has an index."""


@dataclass(slots=True)
class MemorySchema:
    """A SchemaReader. Step: schema."""

    tables: list[Table]
    faults: Faults = field(default_factory=Faults)
    written: int = 0
    options: dict[str, Options] = field(default_factory=dict)
    truncated: dict[UUID, bytes] = field(default_factory=dict)
    epoch: int | None = None
    described: dict[Name, str] = field(default_factory=dict)

    def schema_rows(self) -> list[KeyedRow]:
        """The rows of the tables, now."""
        self.faults.at("schema")
        return [row for table in self.tables for row in rows_of(table, self.written)]

    def node_state(self) -> NodeState:
        """What else it says, now."""
        return NodeState(dict(self.options), dict(self.truncated), self.epoch)

    def statements(self, keyspaces: Collection[str]) -> dict[Name, str]:
        """What DESCRIBE says of these keyspaces, now."""
        return {name: statement for name, statement in self.described.items() if name[0] in keyspaces}


def rows_of(table: Table, written: int = 0) -> tuple[KeyedRow, ...]:
    """The rows of `system_schema` that define a table, its user types' included, as if written at one time."""
    owner = {"keyspace_name": table.keyspace, "table_name": table.name}
    rows = [KeyedRow("tables", {**owner, "id": table.id, "flags": table.flags, "cdc": table.cdc}, written)]
    rows += [KeyedRow("columns", owner | _column(column), written) for column in (*table.key, *table.columns)]
    for dropped in table.dropped:
        row = owner | _column(dropped.column) | {"dropped_time": dropped.dropped_at // 1000}
        rows.append(KeyedRow("dropped_columns", row, written))
    for one in user_types_in(column.type for column in (*table.key, *table.columns)):
        row = {"keyspace_name": table.keyspace, "type_name": one.name, "field_names": list(one.fields)}
        rows.append(KeyedRow("types", {**row, "field_types": [str(arg) for arg in one.args]}, written))
    return tuple(rows)


def _column(column: Column) -> dict[str, object]:
    keyed = column.kind is ColumnKind.CLUSTERING
    return {
        "column_name": column.name,
        "column_name_bytes": column.name_bytes,
        "kind": column.kind.value,
        "position": column.position,
        "type": str(column.type),
        "clustering_order": ("desc" if column.descending else "asc") if keyed else "none",
    }
