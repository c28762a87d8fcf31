"""What a decoded mutation is made of. Values are Cassandra's bytes; order is the order in the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace_schemas.change import Cell, ColumnDeletion, Deletion, Marker
from tailrace_schemas.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row or static row. `clustering` is () for the static row and for tables without clustering columns.

    Collections without deletion and without cells, which 5.0.0 to 5.0.3 write, are left out. Cells of a dropped
    column are in: their column is one of `table.dropped`.
    """

    clustering: tuple[bytes | None, ...]
    static: bool = False
    marker: Marker | None = None
    deletion: Deletion | None = None
    cells: tuple[Cell, ...] = ()
    column_deletions: tuple[ColumnDeletion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeMarker:
    """A range tombstone's bound or boundary (ClusteringPrefix.Kind ordinal). A boundary closes one and opens one."""

    kind: int
    values: tuple[bytes | None, ...]
    close: Deletion | None = None
    open: Deletion | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionUpdate:
    """What one mutation writes to one partition of one table. `items` are in clustering (storage) order.

    `metadata_epoch` is that of the cluster's metadata by which the writer knew the table, None before version 9.
    `streamed`: nothing in it is as old as its head says (change.STREAMED).
    """

    table: Table
    key: bytes
    deletion: Deletion | None = None
    static: Row | None = None
    items: tuple[Row | RangeMarker, ...] = ()
    metadata_epoch: int | None = None
    streamed: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One frame's payload, decoded: updates in wire order, all of one keyspace and one partition key."""

    updates: tuple[PartitionUpdate, ...]
