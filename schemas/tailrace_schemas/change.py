"""The change: one row, static row, deletion or truncation, with everything Cassandra keeps about it.

Values stay Cassandra's own bytes, so that nothing is lost on the way and merging compares what Cassandra compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from tailrace_schemas.pickling import pickled_by_fields
from tailrace_schemas.position import Position
from tailrace_schemas.table import Column, Table


class Op(Enum):
    """What a change does; the order is the Avro enum's and the digest's, so symbols are only ever appended."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    DELETE_PARTITION = "delete_partition"
    DELETE_RANGE = "delete_range"
    TRUNCATE = "truncate"
    READ = "read"


OPS: Final[tuple[Op, ...]] = tuple(Op)
SCHEMA_INFERRED: Final = 1
"""Bit 0 of a source's `flags`: the definition, or the cdc flag, that the change was read with may not be that of its
place in the log (docs/contracts.md section 2)."""
UPDATE_BEGINS: Final = 2
"""Bit 1: the first change of its table's update, which is not the mutation's first; that has `index` 0."""
UPDATE_ENDS: Final = 4
"""Bit 2: the last change of its table's update, which is not the mutation's last; that has `index` `count` - 1."""
STREAMED: Final = 8
"""Bit 3: the update's head says an older time than anything in it has, as that of data which Cassandra streamed from
another node's file and logged once more (docs/contracts.md section 3)."""


TRUNCATED_AT: Final = "truncated_at"
"""The name under which a truncation's record keeps what `system.local` says of it (docs/contracts.md section 3)."""
TRUNCATED_LATE: Final = 16
"""Bit 4, of a truncation: changes of the table that it left may stand before it in the topic (contracts.md section 3,
"truncate")."""


EXPIRED_TTL: Final = 2**31 - 1
"""The TTL of a row marker that never lived (LivenessInfo.EXPIRED_LIVENESS_TTL): by it a node takes a row out of a
materialized view. Of clients no TTL is as large. Such a change is a DELETE with a marker, and without a deletion."""


class Origin(Enum):
    """How a change reached us; the order is the Avro enum's."""

    LOG = "log"
    PARKED = "parked"
    REPLAY = "replay"
    SNAPSHOT = "snapshot"


@dataclass(slots=True, init=False, unsafe_hash=True)
class Marker:
    """A row marker (primary-key liveness): microseconds; seconds; seconds since the epoch. INSERT writes one."""

    written: Final[int]
    ttl: Final[int | None]
    expires: Final[int | None]

    def __init__(self, written: int, ttl: int | None = None, expires: int | None = None) -> None:
        self.written = written
        self.ttl = ttl
        self.expires = expires


@dataclass(slots=True, init=False, unsafe_hash=True)
class Deletion:
    """A deletion of a row, partition, range or whole collection.

    `written` in microseconds; `local` is Cassandra's local deletion time, in seconds since the epoch.
    """

    written: Final[int]
    local: Final[int]

    def __init__(self, written: int, local: int) -> None:
        self.written = written
        self.local = local


@dataclass(slots=True, init=False, unsafe_hash=True)
class Cell:
    """One cell. `path` is None for simple columns, else list position, set element, map key or udt field index.

    A tombstone has `value` None and its local deletion time in `expires`. A live cell has bytes, possibly none of
    them: b"" is a legal value of any type. A live cell with `ttl` expires at `expires`, seconds since the epoch.
    """

    column: Final[Column]
    path: Final[bytes | None]
    written: Final[int]
    ttl: Final[int | None]
    expires: Final[int | None]
    value: Final[bytes | None]

    def __init__(
        self,
        column: Column,
        path: bytes | None,
        written: int,
        ttl: int | None,
        expires: int | None,
        value: bytes | None,
    ) -> None:
        self.column = column
        self.path = path
        self.written = written
        self.ttl = ttl
        self.expires = expires
        self.value = value

    @property
    def tombstone(self) -> bool:
        """Whether the cell says that there is nothing."""
        return self.value is None


@dataclass(frozen=True, slots=True)
class ColumnDeletion:
    """The deletion of a whole multi-cell column: an overwrite's (at the write's time - 1) or DELETE's own."""

    column: Column
    deletion: Deletion


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a deleted range, in storage order. `values` is a clustering prefix; empty means open."""

    values: tuple[bytes | None, ...]
    inclusive: bool


@dataclass(slots=True, init=False, unsafe_hash=True)
class Source:
    """Where a change came from: the position of its mutation, and its place among that mutation's changes."""

    host: Final[str]
    datacenter: Final[str]
    position: Final[Position]
    index: Final[int]
    count: Final[int]
    origin: Final[Origin]
    durable: Final[bool]
    seen: Final[int]
    flags: Final[int]

    def __init__(
        self,
        host: str,
        datacenter: str,
        position: Position,
        index: int,
        count: int,
        origin: Origin = Origin.LOG,
        durable: bool = True,
        seen: int = 0,
        flags: int = 0,
    ) -> None:
        self.host = host
        self.datacenter = datacenter
        self.position = position
        self.index = index
        self.count = count
        self.origin = origin
        self.durable = durable
        self.seen = seen
        self.flags = flags

    @property
    def streamed(self) -> bool:
        """Whether the log shows that this is data of another node's file, which was most likely logged before."""
        return bool(self.flags & STREAMED)

    @property
    def begins_update(self) -> bool:
        """Whether it is the first change of its table's update."""
        return self.index == 0 or bool(self.flags & UPDATE_BEGINS)

    @property
    def ends_update(self) -> bool:
        """Whether it is the last one."""
        return self.index == self.count - 1 or bool(self.flags & UPDATE_ENDS)


@dataclass(slots=True, init=False, unsafe_hash=True)
class Change:
    """One change of one table.

    `key` is the partition key's serialized bytes (composite-encoded for several columns), None only for truncate.
    `clustering` is None for static rows, partition deletions, range deletions and truncate; () for rows of tables
    without clustering columns. `cells` and `column_deletions` are in wire order. `start` and `end` only for ranges.
    `upto` only for truncate: the position in its host's log up to which the table's data went; None: unknown.
    """

    op: Final[Op]
    table: Final[Table]
    token: Final[int]
    key: Final[bytes | None]
    clustering: Final[tuple[bytes | None, ...] | None]
    static: Final[bool]
    marker: Final[Marker | None]
    deletion: Final[Deletion | None]
    cells: Final[tuple[Cell, ...]]
    column_deletions: Final[tuple[ColumnDeletion, ...]]
    start: Final[Bound | None]
    end: Final[Bound | None]
    digest: Final[bytes]
    source: Final[Source | None]
    upto: Final[Position | None]

    def __init__(
        self,
        *,
        op: Op,
        table: Table,
        token: int,
        key: bytes | None,
        clustering: tuple[bytes | None, ...] | None = None,
        static: bool = False,
        marker: Marker | None = None,
        deletion: Deletion | None = None,
        cells: tuple[Cell, ...] = (),
        column_deletions: tuple[ColumnDeletion, ...] = (),
        start: Bound | None = None,
        end: Bound | None = None,
        digest: bytes = b"",
        source: Source | None = None,
        upto: Position | None = None,
    ) -> None:
        self.op = op
        self.table = table
        self.token = token
        self.key = key
        self.clustering = clustering
        self.static = static
        self.marker = marker
        self.deletion = deletion
        self.cells = cells
        self.column_deletions = column_deletions
        self.start = start
        self.end = end
        self.digest = digest
        self.source = source
        self.upto = upto


pickled_by_fields(Marker, Deletion, Cell, ColumnDeletion, Bound, Source, Change)


def record_times(change: Change) -> tuple[int, int | None, int | None]:
    """(written, ttl, expires) of the record: the marker's, else the deletion's, else the newest cell's.

    Cells and collection deletions compete by write time; at a tie the first by column name, then path, counts. Of a
    deletion `expires` is the local deletion time. docs/contracts.md section 3.
    """
    if change.marker is not None:
        return change.marker.written, change.marker.ttl, change.marker.expires
    if change.deletion is not None:
        return change.deletion.written, None, change.deletion.local
    newest: tuple[tuple[int, bytes, bytes], tuple[int, int | None, int | None]] | None = None
    for deleted in change.column_deletions:
        rank = (-deleted.deletion.written, deleted.column.name_bytes, b"")
        if newest is None or rank < newest[0]:
            newest = rank, (deleted.deletion.written, None, deleted.deletion.local)
    for cell in change.cells:
        rank = (-cell.written, cell.column.name_bytes, cell.path or b"")
        if newest is None or rank < newest[0]:
            newest = rank, (cell.written, cell.ttl, cell.expires)
    if newest is None:
        raise ValueError(f"{change.table}: a change without marker, deletion or cells has no write time")
    return newest[1]
