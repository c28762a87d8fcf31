"""Mutations to bytes, by the book and with none of the decoder's code: the decoder's independent counterpart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace_schemas.change import Cell, Deletion, Marker
from tailrace_schemas.table import Column

LIVE = -(1 << 63)


def vint(value: int) -> bytes:
    """A vint of `value` modulo 2^64, so that negative differences wrap around."""
    value &= (1 << 64) - 1
    for extra in range(8):
        if value < 1 << 7 * (extra + 1):
            lead = 0xFF00 >> extra & 0xFF
            body = value.to_bytes(extra + 1, "big")
            return bytes((body[0] | lead,)) + body[1:]
    return b"\xff" + value.to_bytes(8, "big")


def sized(data: bytes) -> bytes:
    """Bytes behind their length."""
    return vint(len(data)) + data


@dataclass(frozen=True, slots=True)
class Stats:
    """What deltas count from, as in EncodingStats: microseconds, seconds, seconds."""

    timestamp: int = 1_442_880_000_000_000
    local: int = 1_442_880_000
    ttl: int = 0

    def encoded(self) -> bytes:
        return vint(self.timestamp - 1_442_880_000_000_000) + vint(self.local - 1_442_880_000) + vint(self.ttl)

    def deletion(self, deletion: Deletion | None) -> bytes:
        """A deletion, or LIVE, with 5.0's local deletion time."""
        written, local = (LIVE, -1) if deletion is None else (deletion.written, deletion.local)
        return vint(written - self.timestamp) + vint(local - self.local)


def encode(mutation: Mutation, stats: Stats, headers: Sequence[tuple[Sequence[Column], Sequence[Column]]]) -> bytes:
    """The payload; `headers` are each update's static and regular columns in wire order.

    Updates that have an epoch make it one of version 9, which begins with flags.
    """
    data = b"\0" * any(update.metadata_epoch is not None for update in mutation.updates) + vint(len(mutation.updates))
    for update, (static, regular) in zip(mutation.updates, headers, strict=True):
        data += update.table.id.bytes + (b"" if update.metadata_epoch is None else vint(update.metadata_epoch))
        data += _update(update, stats, static, regular)
    return data


def _update(update: PartitionUpdate, stats: Stats, static: Sequence[Column], regular: Sequence[Column]) -> bytes:
    if not (update.items or update.static or update.deletion):
        return sized(update.key) + b"\x01"
    flags = 0x10 | 0x04 * (update.deletion is not None) | 0x08 * (update.static is not None)
    data = sized(update.key) + bytes((flags,)) + stats.encoded()
    for columns in (static, regular) if update.static else (regular,):
        data += vint(len(columns)) + b"".join(sized(column.name_bytes) for column in columns)
    if update.deletion:
        data += stats.deletion(update.deletion)
    if update.static:
        data += _row(update.static, stats, static, ())
    data += vint(len(update.items))
    for item in update.items:
        if isinstance(item, Row):
            data += _row(item, stats, regular, update.table.clustering)
        else:
            data += _range_marker(item, stats, update.table.clustering)
    return data + b"\x01"


def _row(row: Row, stats: Stats, columns: Sequence[Column], clustering: Sequence[Column]) -> bytes:
    present = {cell.column for cell in row.cells} | {deleted.column for deleted in row.column_deletions}
    marker = row.marker
    flags = 0x04 * (marker is not None) | 0x08 * (marker is not None and marker.ttl is not None)
    flags |= 0x10 * (row.deletion is not None) | 0x20 * (len(present) == len(columns))
    flags |= 0x40 * bool(row.column_deletions) | 0x80 * row.static
    data = bytes((flags,)) + b"\x01" * row.static
    if not row.static:
        data += _values(row.clustering, clustering)
    if marker is not None:
        data += vint(marker.written - stats.timestamp)
        if marker.ttl is not None and marker.expires is not None:
            data += vint(marker.ttl - stats.ttl) + vint(marker.expires - stats.local)
    if row.deletion is not None:
        data += stats.deletion(row.deletion)
    if not flags & 0x20:
        data += _subset([index for index, column in enumerate(columns) if column in present], len(columns))
    deletions = {deleted.column: deleted.deletion for deleted in row.column_deletions}
    for column in columns:
        cells = [cell for cell in row.cells if cell.column == column]
        if column not in present:
            continue
        if column.type.multicell:
            data += stats.deletion(deletions.get(column)) if deletions else b""
            data += vint(len(cells))
        data += b"".join(_cell(cell, stats, marker) for cell in cells)
    return data


def _subset(present: list[int], count: int) -> bytes:
    missing = [index for index in range(count) if index not in present]
    if count < 64:
        return vint(sum(1 << index for index in missing))
    listed = present if len(present) < count // 2 else missing
    return vint(len(missing)) + b"".join(vint(index) for index in listed)


def _cell(cell: Cell, stats: Stats, marker: Marker | None) -> bytes:
    same_time = marker is not None and marker.written == cell.written
    expiring = cell.ttl is not None
    same_ttl = expiring and marker is not None and (marker.ttl, marker.expires) == (cell.ttl, cell.expires)
    flags = 0x01 * cell.tombstone | 0x02 * expiring | 0x04 * (not cell.value) | 0x08 * same_time | 0x10 * same_ttl
    data = bytes((flags,))
    if not same_time:
        data += vint(cell.written - stats.timestamp)
    if cell.expires is not None and not same_ttl:
        data += vint(cell.expires - stats.local)
        # The expiry first, then the ttl: the other way round than in liveness.
        data += vint(cell.ttl - stats.ttl) if cell.ttl is not None else b""
    if cell.path is not None:
        data += sized(cell.path)
    if cell.value:
        fixed = cell.path is None and cell.column.type.fixed_size is not None
        data += cell.value if fixed else sized(cell.value)
    return data


def _values(values: Sequence[bytes | None], columns: Sequence[Column]) -> bytes:
    data = b""
    for start in range(0, len(values), 32):
        group = values[start : start + 32]
        data += vint(sum((2 if value is None else value == b"") << 2 * index for index, value in enumerate(group)))
        for value, column in zip(group, columns[start:], strict=False):
            if value:
                data += value if column.type.fixed_size is not None else sized(value)
    return data


def _range_marker(marker: RangeMarker, stats: Stats, clustering: Sequence[Column]) -> bytes:
    data = b"\x02" + bytes((marker.kind,)) + len(marker.values).to_bytes(2, "big") + _values(marker.values, clustering)
    return data + b"".join(stats.deletion(deletion) for deletion in (marker.close, marker.open) if deletion)
