"""Tables and columns as the commit log needs them: ids, name bytes, kinds, types, dropped columns, the cdc flag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final
from uuid import UUID

from tailrace_schemas.cql.types import CqlType
from tailrace_schemas.pickling import pickled_by_fields


class ColumnKind(Enum):
    """What a column is to its table; the values are those of `system_schema.columns.kind`."""

    PARTITION_KEY = "partition_key"
    CLUSTERING = "clustering"
    STATIC = "static"
    REGULAR = "regular"


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `name_bytes` is what stands in the log (not always UTF-8); `position` counts within key kinds."""

    name: str
    name_bytes: bytes
    kind: ColumnKind
    type: CqlType
    position: int = -1
    descending: bool = False


@dataclass(frozen=True, slots=True)
class DroppedColumn:
    """A column that was dropped: cells written at or before `dropped_at` (microseconds) are no longer data."""

    column: Column
    dropped_at: int


VIEW: Final = "view"
"""The flag of a materialized view."""
STRICT: Final = "strict"
"""The flag of a view whose key has a column that is in no key of its base table. Its rows are there only while their
marker lives, whatever cells they have (View.enforceStrictLiveness)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One definition of a table.

    `partition_key` and `clustering` are in key order; `static` and `regular` sorted by name bytes. `id` is the table
    id of the log. `flags` are those of `system_schema.tables` (compound, dense, super, counter), and VIEW and STRICT.
    """

    keyspace: str
    name: str
    id: UUID
    partition_key: tuple[Column, ...]
    clustering: tuple[Column, ...] = ()
    static: tuple[Column, ...] = ()
    regular: tuple[Column, ...] = ()
    dropped: tuple[DroppedColumn, ...] = ()
    cdc: bool = False
    flags: frozenset[str] = frozenset({"compound"})

    @property
    def key(self) -> tuple[Column, ...]:
        """Partition key, then clustering columns: the primary key."""
        return self.partition_key + self.clustering

    @property
    def columns(self) -> tuple[Column, ...]:
        """Every non-key column, static ones first, each kind sorted by name bytes."""
        return self.static + self.regular

    @property
    def is_counter(self) -> bool:
        """Whether the table's regular columns are counters."""
        return "counter" in self.flags

    @property
    def is_strict(self) -> bool:
        """Whether its rows are there only while their marker lives."""
        return STRICT in self.flags

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.name}"


pickled_by_fields(Column, DroppedColumn, Table)


def sharing(before: Table, after: Table) -> Table:
    """`after`, with the column objects of `before` where they are equal: an ALTER of a wide table changes few."""
    existing = {column: column for column in (*before.key, *before.columns)}

    def shared(columns: tuple[Column, ...]) -> tuple[Column, ...]:
        return tuple([existing.get(column, column) for column in columns])

    return replace(
        after,
        partition_key=shared(after.partition_key),
        clustering=shared(after.clustering),
        static=shared(after.static),
        regular=shared(after.regular),
    )


def columns_by_name(table: Table) -> Mapping[bytes, Column]:
    """Non-key columns by the bytes that name them in the log; a live column hides a dropped one of its name."""
    by_name = {dropped.column.name_bytes: dropped.column for dropped in table.dropped}
    by_name.update({column.name_bytes: column for column in table.columns})
    return by_name
