"""Rows, cells and range tombstone markers: the unfiltereds of a partition update, from bytes to values.

Lengths are not checked one by one. Reading goes forward only, every item ends with another byte to read, and an offset
behind the end fails there, which decode_mutation turns into a TruncatedError.
"""

from __future__ import annotations

from typing import Final

from tailrace.commitlog.model import RangeMarker, Row
from tailrace.commitlog.plans import COMPLEX, VARIABLE, Plan
from tailrace_schemas.change import Cell, ColumnDeletion, Deletion, Marker
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.table import Column

# UnfilteredSerializer's flags.
END_OF_PARTITION: Final = 0x01
IS_MARKER: Final = 0x02
_HAS_TIMESTAMP: Final = 0x04
_HAS_TTL: Final = 0x08
_HAS_DELETION: Final = 0x10
_HAS_ALL_COLUMNS: Final = 0x20
_HAS_COMPLEX_DELETION: Final = 0x40
_EXTENDED: Final = 0x80
# The second byte's.
_IS_STATIC: Final = 0x01
_IS_SHADOWABLE: Final = 0x02
# Cell.Serializer's flags.
_IS_DELETED: Final = 0x01
_IS_EXPIRING: Final = 0x02
_HAS_EMPTY_VALUE: Final = 0x04
_USE_ROW_TIMESTAMP: Final = 0x08
_USE_ROW_TTL: Final = 0x10
_CELL_FLAGS: Final = 0x1F

# ClusteringPrefix.Kind: bounds by what they do, boundaries.
_START_BOUNDS: Final = frozenset({1, 7})
_END_BOUNDS: Final = frozenset({0, 6})
_BOUNDARIES: Final = frozenset({2, 5})

_LONG_MAX: Final = (1 << 63) - 1
_LONG_SPAN: Final = 1 << 64
_LIVE: Final = -(1 << 63)
# Clustering values are announced in groups of 32, two bits each.
_GROUP: Final = 32


class Header:
    """A partition update's serialization header: the least values that deltas count from, and its table's sizes.

    `timestamp` microseconds, `local` seconds, `ttl` seconds; `unsigned` says how to read local deletion times;
    `clustering` are the sizes of the table's clustering values.
    """

    __slots__ = ("clustering", "local", "timestamp", "ttl", "unsigned")

    def __init__(self, timestamp: int, local: int, ttl: int, unsigned: bool, clustering: tuple[int, ...]) -> None:
        self.timestamp = timestamp
        self.local = local
        self.ttl = ttl
        self.unsigned = unsigned
        self.clustering = clustering


def signed_64(value: int) -> int:
    """A sum of a vint and a signed 64-bit integer as Java's long has it: deltas wrap around."""
    return value - _LONG_SPAN if value > _LONG_MAX else value


def signed_32(value: int) -> int:
    """The low 32 bits as Java's int."""
    value &= 0xFFFFFFFF
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def _read_local(data: bytes, at: int, header: Header) -> tuple[int, int]:
    """A local deletion time in seconds since the epoch, and the offset behind it (Cell.decodeLocalDeletionTime)."""
    delta, at = read_unsigned(data, at)
    local = delta + header.local
    return (local & 0xFFFFFFFF if header.unsigned else signed_32(local)), at


def read_deletion(data: bytes, at: int, header: Header) -> tuple[Deletion | None, int]:
    """A deletion time, None for LIVE, and the offset behind it (SerializationHeader.readDeletionTime)."""
    delta, at = read_unsigned(data, at)
    written = signed_64(delta + header.timestamp)
    local, at = _read_local(data, at, header)
    # LIVE is told by its first field alone; 4.x and 5.0 write different local deletion times beside it.
    return (None if written == _LIVE else Deletion(written, local)), at


def read_values(data: bytes, at: int, sizes: tuple[int, ...]) -> tuple[tuple[bytes | None, ...], int]:
    """As many clustering values as there are sizes, and the offset behind them (ClusteringPrefix.Serializer)."""
    values: list[bytes | None] = []
    bits = 0
    for index, size in enumerate(sizes):
        if not index % _GROUP:
            bits, at = read_unsigned(data, at)
        if bits & 3:
            values.append(None if bits & 2 else b"")
        else:
            if size == VARIABLE:
                size, at = read_unsigned(data, at)
            values.append(data[at : at + size])
            at += size
        bits >>= 2
    return tuple(values), at


def read_range_marker(data: bytes, at: int, header: Header) -> tuple[RangeMarker, int]:
    """The range tombstone marker behind its flags byte, and the offset behind it (UnfilteredSerializer)."""
    kind = data[at]
    count = data[at + 1] << 8 | data[at + 2]
    if count > len(header.clustering):
        raise CorruptError(f"range marker: {count} values for {len(header.clustering)} clustering columns")
    values, at = read_values(data, at + 3, header.clustering[:count])
    first, at = read_deletion(data, at, header)
    if kind in _START_BOUNDS:
        return RangeMarker(kind=kind, values=values, open=first), at
    if kind in _END_BOUNDS:
        return RangeMarker(kind=kind, values=values, close=first), at
    if kind not in _BOUNDARIES:
        raise CorruptError(f"range marker: kind {kind} is neither bound nor boundary")
    # The closing deletion stands first.
    second, at = read_deletion(data, at, header)
    return RangeMarker(kind=kind, values=values, close=first, open=second), at


def read_row(data: bytes, at: int, header: Header, plan: Plan, static: bool) -> tuple[Row, int]:
    """The row at its flags byte, and the offset behind it (UnfilteredSerializer.serialize, messaging form)."""
    flags = data[at]
    at += 1
    extended = 0
    if flags & _EXTENDED:
        extended = data[at]
        at += 1
    # A shadowable deletion occurs in materialized views only, and is deprecated: read as the row deletion it is.
    if flags & (END_OF_PARTITION | IS_MARKER) or extended & ~_IS_SHADOWABLE != (_IS_STATIC if static else 0):
        raise CorruptError(f"{'static ' if static else ''}row: flags {flags:#04x}, {extended:#04x}")
    clustering: tuple[bytes | None, ...] = ()
    if not static:
        clustering, at = read_values(data, at, header.clustering)
    marker: Marker | None = None
    if flags & _HAS_TIMESTAMP:
        marker, at = _read_marker(data, at, header, bool(flags & _HAS_TTL))
    deletion: Deletion | None = None
    if flags & _HAS_DELETION:
        deletion, at = read_deletion(data, at, header)
    cells: list[Cell] = []
    deletions: list[ColumnDeletion] = []
    at = _read_columns(data, at, flags, header, plan, marker, cells, deletions)
    row = Row(
        clustering=clustering,
        static=static,
        marker=marker,
        deletion=deletion,
        cells=tuple(cells),
        column_deletions=tuple(deletions),
    )
    return row, at


def _read_columns(
    data: bytes,
    at: int,
    flags: int,
    header: Header,
    plan: Plan,
    marker: Marker | None,
    cells: list[Cell],
    deletions: list[ColumnDeletion],
) -> int:
    """Append what a row has of each column, in header order; the offset behind it."""
    present = plan.everything
    if not flags & _HAS_ALL_COLUMNS:
        present, at = plan.read_subset(data, at)
    columns = plan.columns
    sizes = plan.sizes
    with_deletion = bool(flags & _HAS_COMPLEX_DELETION)
    for index in present:
        size = sizes[index]
        if size == COMPLEX:
            at = _read_complex(data, at, columns[index], header, marker, with_deletion, cells, deletions)
        else:
            cell, at = _read_cell(data, at, columns[index], size, header, marker)
            cells.append(cell)
    return at


def _read_marker(data: bytes, at: int, header: Header, expiring: bool) -> tuple[Marker, int]:
    """A row's liveness: timestamp, then ttl, then expiry. (In cells the ttl comes last.)"""
    delta, at = read_unsigned(data, at)
    written = signed_64(delta + header.timestamp)
    if not expiring:
        return Marker(written), at
    delta, at = read_unsigned(data, at)
    ttl = signed_32(delta + header.ttl)
    expires, at = _read_local(data, at, header)
    return Marker(written, ttl, expires), at


def _read_complex(
    data: bytes,
    at: int,
    column: Column,
    header: Header,
    marker: Marker | None,
    with_deletion: bool,
    cells: list[Cell],
    deletions: list[ColumnDeletion],
) -> int:
    """Append a multi-cell column's deletion, if not LIVE, and its cells; the offset behind them."""
    if with_deletion:
        deletion, at = read_deletion(data, at, header)
        if deletion is not None:
            deletions.append(ColumnDeletion(column, deletion))
    count, at = read_unsigned(data, at)
    for _ in range(count):
        cell, at = _read_cell(data, at, column, COMPLEX, header, marker)
        cells.append(cell)
    return at


def _read_cell(
    data: bytes, at: int, column: Column, size: int, header: Header, marker: Marker | None
) -> tuple[Cell, int]:
    """One cell, and the offset behind it (Cell.Serializer). Of size COMPLEX it has a path; values then have lengths."""
    flags = data[at]
    at += 1
    if flags > _CELL_FLAGS:
        raise CorruptError(f"cell of {column.name}: flags {flags:#04x}")
    if not flags & _USE_ROW_TIMESTAMP:
        written = data[at]
        at += 1
        if written > 0x7F:
            written, at = read_unsigned(data, at - 1)
        written += header.timestamp
        if written > _LONG_MAX:
            written -= _LONG_SPAN
    elif marker is not None:
        written = marker.written
    else:
        raise CorruptError(f"cell of {column.name}: takes its time from a row marker that is not there")
    ttl: int | None = None
    expires: int | None = None
    if flags & (_IS_DELETED | _IS_EXPIRING | _USE_ROW_TTL):
        ttl, expires, at = _read_expiry(data, at, column, flags, header, marker)
    path: bytes | None = None
    if size == COMPLEX:
        length, at = read_unsigned(data, at)
        path = data[at : at + length]
        at += length
    value = b""
    if not flags & _HAS_EMPTY_VALUE:
        if size < 0:
            size = data[at]
            at += 1
            if size > 0x7F:
                size, at = read_unsigned(data, at - 1)
        value = data[at : at + size]
        at += size
    return Cell(column, path, written, ttl, expires, None if flags & _IS_DELETED else value), at


def _read_expiry(
    data: bytes, at: int, column: Column, flags: int, header: Header, marker: Marker | None
) -> tuple[int | None, int, int]:
    """(ttl, expiry or local deletion time, offset behind them) of a cell: the ttl comes last, unlike in liveness."""
    kinds = flags & (_IS_DELETED | _IS_EXPIRING)
    if kinds == _IS_DELETED | _IS_EXPIRING:
        raise CorruptError(f"cell of {column.name}: both deleted and expiring")
    if flags & _USE_ROW_TTL:
        if kinds != _IS_EXPIRING or marker is None or marker.expires is None:
            raise CorruptError(f"cell of {column.name}: takes a ttl from a row marker that has none")
        return marker.ttl, marker.expires, at
    expires, at = _read_local(data, at, header)
    if kinds == _IS_DELETED:
        return None, expires, at
    delta, at = read_unsigned(data, at)
    return signed_32(delta + header.ttl), expires, at
