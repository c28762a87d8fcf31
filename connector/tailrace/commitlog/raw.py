"""Mutations in the raw form of `tailrace dump`: JSON values that show all that the log holds, bytes as hex.

The form is that of a dump made with Cassandra's own CommitLogReader, so that the two can be compared whole.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace_schemas.change import Cell, Deletion
from tailrace_schemas.system_tables import system_table_id
from tailrace_schemas.table import Column, Table
from tailrace_schemas.tokens import token

NEVER_32: Final = 2**31 - 1
"""The local deletion time of what does not expire, as Cassandra before 5.0 names it (Cell.NO_DELETION_TIME)."""
NEVER_64: Final = 2**63 - 1
"""The same as 5.0 names it, whatever the version of the segment."""

# ClusteringPrefix.Kind by ordinal; 3 and 4 are no markers.
_KINDS: Final = {
    0: "EXCL_END_BOUND",
    1: "INCL_START_BOUND",
    2: "EXCL_END_INCL_START_BOUNDARY",
    5: "INCL_END_EXCL_START_BOUNDARY",
    6: "INCL_END_BOUND",
    7: "EXCL_START_BOUND",
}
# Cassandra's own tables that are not partitioned by hash. Of batches, the token is the key, a timeuuid
# (LocalPartitioner); of the cluster's metadata, what is left of a long above the key (ReversedLongLocalPartitioner).
_BATCHES: Final = system_table_id("system", "batches")
_METADATA: Final = frozenset(
    {
        system_table_id("system", "local_metadata_log"),
        system_table_id("system", "metadata_snapshots"),
        system_table_id("system_cluster_metadata", "distributed_metadata_log"),
    }
)


def raw_mutation(
    mutation: Mutation, *, segment: int, end: int, size: int, never: int = NEVER_64, dropped: bool = False
) -> dict[str, object]:
    """The raw form of one mutation: `end` is its frame's logical position, `size` its payload's length in bytes.

    `never` stands where nothing expires: NEVER_32 or NEVER_64. Cells and deletions of dropped columns that were
    written up to the drop are left out, as Cassandra's reader does, unless `dropped` asks for them.
    """
    first = mutation.updates[0]
    return {
        "seg": segment,
        "pos": end,
        "size": size,
        "cdc": any(update.table.cdc for update in mutation.updates),
        "ks": first.table.keyspace,
        "token": _token(first),
        "updates": [_update(update, never, dropped) for update in mutation.updates],
    }


def _token(update: PartitionUpdate) -> str:
    if update.table.id == _BATCHES and len(update.key) == 16:
        return str(UUID(bytes=update.key))
    if update.table.id in _METADATA and len(update.key) == 8:
        return str((1 << 63) - 1 - int.from_bytes(update.key, "big", signed=True))
    return str(token(update.key))


def _update(update: PartitionUpdate, never: int, dropped: bool) -> dict[str, object]:
    drop_times = {} if dropped else _drop_times(update.table)
    return {
        "table": update.table.name,
        "id": str(update.table.id),
        "key": update.key.hex(),
        "pdel": _deletion(update.deletion),
        "static": None if update.static is None else _row(update.static, never, drop_times),
        "items": [
            _row(item, never, drop_times) if isinstance(item, Row) else _range_marker(item) for item in update.items
        ],
    }


def _drop_times(table: Table) -> dict[bytes, int]:
    """Name bytes of dropped columns, also of ones added again, to the microsecond of the drop."""
    return {dropped.column.name_bytes: dropped.dropped_at for dropped in table.dropped}


def _row(row: Row, never: int, dropped: dict[bytes, int]) -> dict[str, object]:
    # Cassandra has 0 where there is no TTL (LivenessInfo.NO_TTL, and Cell.NO_TTL below).
    marker = row.marker
    clustering = {} if row.static else {"ck": [_hex(value) for value in row.clustering]}
    return {
        **clustering,
        "live": None if marker is None else [marker.written, marker.ttl or 0, _expiry(marker.expires, never)],
        "del": _deletion(row.deletion),
        "cols": _columns(row, never, dropped),
    }


def _columns(row: Row, never: int, dropped: dict[bytes, int]) -> list[dict[str, object]]:
    """Columns in wire order, simple ones with their cell, multi-cell ones with deletion and cells."""
    columns: dict[bytes, tuple[Column, dict[str, object]]] = {}
    deletions = {
        deleted.column.name_bytes: deleted
        for deleted in row.column_deletions
        if deleted.deletion.written > dropped.get(deleted.column.name_bytes, deleted.deletion.written - 1)
    }
    for name, deleted in deletions.items():
        columns[name] = deleted.column, {"n": deleted.column.name, "cdel": _deletion(deleted.deletion), "cc": []}
    for cell in row.cells:
        column = cell.column
        name = column.name_bytes
        if name in dropped and cell.written <= dropped[name]:
            continue
        if cell.path is None:
            columns[name] = column, {"n": column.name, "c": _cell(cell, never)}
            continue
        _, entry = columns.setdefault(name, (column, {"n": column.name, "cdel": None, "cc": []}))
        cells = entry["cc"]
        assert isinstance(cells, list)  # noqa: S101 - made in this function
        cells.append(_cell(cell, never))
    return [entry for _, (_, entry) in sorted(columns.items(), key=lambda item: _wire_order(item[1][0]))]


def _wire_order(column: Column) -> tuple[bool, bytes]:
    """Cassandra's order of columns (ColumnMetadata.comparisonOrder): the first byte of a name compares signed."""
    name = column.name_bytes
    return column.type.multicell, bytes((name[0] ^ 0x80,)) + name[1:] if name else b""


def _cell(cell: Cell, never: int) -> dict[str, object]:
    return {
        "ts": cell.written,
        "ttl": cell.ttl or 0,
        "ldt": _expiry(cell.expires, never),
        "tomb": cell.tombstone,
        "path": _hex(cell.path),
        "val": (cell.value or b"").hex(),
    }


def _range_marker(marker: RangeMarker) -> dict[str, object]:
    return {
        "marker": _KINDS[marker.kind],
        "vals": [_hex(value) for value in marker.values],
        "close": _deletion(marker.close),
        "open": _deletion(marker.open),
    }


def _deletion(deletion: Deletion | None) -> list[int] | None:
    return None if deletion is None else [deletion.written, deletion.local]


def _expiry(expires: int | None, never: int) -> int:
    return never if expires is None else expires


def _hex(value: bytes | None) -> str | None:
    return None if value is None else value.hex()
