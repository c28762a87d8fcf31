"""Table definitions as the agent came to know them: by id, and never forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from tailrace.position import Position
from tailrace_schemas.table import Table


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """What one merge changed: new ids, other definitions under known ids, and ids that the cluster has no longer."""

    added: tuple[Table, ...] = ()
    altered: tuple[Table, ...] = ()
    dropped: tuple[Table, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.altered or self.dropped)

    def __str__(self) -> str:
        kinds = (("added", self.added), ("altered", self.altered), ("dropped", self.dropped))
        return "; ".join(f"{kind}: {', '.join(map(str, tables))}" for kind, tables in kinds if tables) or "nothing"


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """Every definition that was ever read; immutable, a merge gives a new one.

    `current` are the ids that the cluster had at the last read; definitions of others stay for the mutations that
    the log still holds. `cdc_keyspaces` have, or had, a table with cdc = true: mutations of others hold nothing to
    publish.
    """

    definitions: Mapping[UUID, Table] = field(default_factory=lambda: MappingProxyType({}))
    current: frozenset[UUID] = frozenset()
    cdc_keyspaces: frozenset[str] = frozenset()

    def table(self, table_id: UUID, position: Position) -> Table | None:  # noqa: ARG002 - see below
        """The definition, cdc flag included, that holds for a mutation at `position`; None for an id never read.

        Today it is the newest one read: exact while no DDL touches a table whose segments are unread. The position
        is part of the question, because the answer will depend on it (docs/contracts.md section 2).
        """
        return self.definitions.get(table_id)

    def merge(self, tables: Iterable[Table]) -> tuple[SchemaHistory, SchemaDifference]:
        """The history after a whole read of the cluster's schema, and what that changed."""
        read = {table.id: table for table in tables}
        difference = SchemaDifference(
            added=_sorted(table for id, table in read.items() if id not in self.definitions),
            altered=_sorted(table for id, table in read.items() if self.definitions.get(id, table) != table),
            dropped=_sorted(self.definitions[id] for id in self.current - read.keys()),
        )
        return self._with(read, frozenset(read)), difference

    def learn(self, tables: Iterable[Table]) -> tuple[SchemaHistory, SchemaDifference]:
        """The history with the ids that it lacks; known definitions stay as they are, until the log is at their DDL.

        A new id can be learnt at any time, for the log names it only after its creation.
        """
        new = {table.id: table for table in tables if table.id not in self.definitions}
        return self._with(new, self.current | new.keys()), SchemaDifference(added=_sorted(new.values()))

    def _with(self, read: Mapping[UUID, Table], current: frozenset[UUID]) -> SchemaHistory:
        keyspaces = self.cdc_keyspaces | {table.keyspace for table in read.values() if table.cdc}
        return SchemaHistory(MappingProxyType({**self.definitions, **read}), current, keyspaces)

    def tracked(self) -> tuple[Table, ...]:
        """The cluster's present tables with cdc = true, by name."""
        return _sorted(table for id, table in self.definitions.items() if id in self.current and table.cdc)


def _sorted(tables: Iterable[Table]) -> tuple[Table, ...]:
    return tuple(sorted(tables, key=str))
