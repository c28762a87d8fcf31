"""A frame's payload to the mutation it is: partition updates of one partition, decoded by their tables' definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from tailrace.commitlog.descriptor import VERSIONS, SegmentVersion
from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace.commitlog.plans import Plan, shape_of
from tailrace.commitlog.rows import (
    END_OF_PARTITION,
    IS_MARKER,
    Header,
    read_deletion,
    read_range_marker,
    read_row,
    signed_32,
    signed_64,
)
from tailrace.errors import UnknownTableError
from tailrace_schemas.change import Deletion
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError, UnsupportedError
from tailrace_schemas.table import Table

# UnfilteredRowIteratorSerializer's flags.
_IS_EMPTY: Final = 0x01
_IS_REVERSED: Final = 0x02
_HAS_PARTITION_DELETION: Final = 0x04
_HAS_STATIC_ROW: Final = 0x08
_HAS_ROW_ESTIMATE: Final = 0x10
_FLAGS: Final = 0x1F

# Mutation's flags of version 9: its transaction may conflict with others (says nothing about the bytes).
_POTENTIAL_CONFLICTS: Final = 0x01

# EncodingStats counts from 2015-09-22T00:00:00Z, in microseconds and in seconds.
_EPOCH_MICROSECONDS: Final = 1_442_880_000_000_000
_EPOCH_SECONDS: Final = 1_442_880_000

_NO_COLUMNS: Final = Plan(())


def first_table(payload: bytes, version: int) -> tuple[int, UUID]:
    """(number of partition updates, table id of the first) without decoding anything.

    A mutation of one update whose table is not of interest can be left at that; with several, the later ids are only
    reached by decoding. Raises TruncatedError, CorruptError, UnsupportedError.
    """
    count, at = _read_count(payload, _known(version))
    return count, _read_table_id(payload, at)


def decode_mutation(payload: bytes, version: int, tables: Callable[[UUID], Table | None]) -> Mutation:
    """Decode a frame's payload, written by a segment of this version (Mutation.MutationSerializer).

    `tables` gives the definition in force for a table id, or None. Cells of dropped columns are in; collections
    without deletion and cells are left out, and so are rows in which nothing is left.

    Raises UnknownTableError for an id without a definition (an update has no length, so nothing behind it can be
    read), UnknownColumnError, TruncatedError, CorruptError and UnsupportedError; nothing else, whatever the bytes. As
    the payload's checksum was right, these mean that a definition does not fit, rather than damage.
    """
    known = _known(version)
    count, at = _read_count(payload, known)
    updates: list[PartitionUpdate] = []
    for _ in range(count):
        table_id = _read_table_id(payload, at)
        table = tables(table_id)
        if table is None:
            raise UnknownTableError(table_id)
        try:
            update, at = _read_update(payload, at + 16, table, known)
        except (IndexError, ValueError):
            # Compiled code says ValueError where an offset behind the end does not even fit a machine word.
            raise TruncatedError(f"mutation of {table}: {len(payload)} bytes end before its values do") from None
        except DecodeError as error:
            error.rule = f"mutation of {table}: {error.rule}"
            error.offset = None
            raise
        updates.append(update)
    if at != len(payload):
        raise CorruptError(f"mutation: {len(payload) - at} bytes left behind the last of {count} updates")
    return Mutation(updates=tuple(updates))


def _known(version: int) -> SegmentVersion:
    known = VERSIONS.get(version)
    if known is None:
        raise UnsupportedError(f"mutations of segment version {version} are not read")
    return known


def _read_count(payload: bytes, version: SegmentVersion) -> tuple[int, int]:
    """The number of partition updates, and the offset of the first."""
    at = 0
    if version.epochs:
        if not payload:
            raise TruncatedError("mutation: its flags are missing")
        if payload[0] > _POTENTIAL_CONFLICTS:
            # A flag may announce bytes of its own: what follows cannot be told.
            raise UnsupportedError(f"mutation flags {payload[0]:#04x} are newer than this Tailrace reads")
        at = 1
    count, at = read_unsigned(payload, at)
    if count == 0:
        raise CorruptError("mutation: no partition update")
    return count, at


def _read_table_id(payload: bytes, at: int) -> UUID:
    table_id = payload[at : at + 16]
    if len(table_id) < 16:
        raise TruncatedError("mutation: ends inside of a table id")
    return UUID(bytes=table_id)


def _read_update(data: bytes, at: int, table: Table, version: SegmentVersion) -> tuple[PartitionUpdate, int]:
    """The update behind its table id, and the offset behind it (UnfilteredRowIteratorSerializer)."""
    shape = shape_of(table)
    epoch: int | None = None
    if version.epochs:
        epoch, at = read_unsigned(data, at)
        epoch = signed_64(epoch)
    length, at = read_unsigned(data, at)
    key = data[at : at + length]
    at += length
    flags = data[at]
    at += 1
    if flags > _FLAGS or flags & _IS_REVERSED:
        raise CorruptError(f"partition flags {flags:#04x}")
    if flags & _IS_EMPTY:
        return PartitionUpdate(table=table, key=key, epoch=epoch), at
    header, at = _read_stats(data, at, version.unsigned_deletion_times, shape.clustering)
    statics = _NO_COLUMNS
    if flags & _HAS_STATIC_ROW:
        statics, at = shape.read_plan(data, at)
    regulars, at = shape.read_plan(data, at)
    deletion: Deletion | None = None
    if flags & _HAS_PARTITION_DELETION:
        deletion, at = read_deletion(data, at, header)
    static: Row | None = None
    if flags & _HAS_STATIC_ROW:
        static, at = read_row(data, at, header, statics, True)
    if flags & _HAS_ROW_ESTIMATE:
        _, at = read_unsigned(data, at)
    items, at = _read_items(data, at, header, regulars)
    if static is not None and _is_empty(static):
        static = None
    update = PartitionUpdate(table=table, key=key, deletion=deletion, static=static, items=items, epoch=epoch)
    return update, at


def _read_stats(data: bytes, at: int, unsigned: bool, clustering: tuple[int, ...]) -> tuple[Header, int]:
    """EncodingStats: the least timestamp, local deletion time and ttl, from which all others count."""
    timestamp, at = read_unsigned(data, at)
    local, at = read_unsigned(data, at)
    ttl, at = read_unsigned(data, at)
    timestamp = signed_64(timestamp + _EPOCH_MICROSECONDS)
    return Header(timestamp, (local + _EPOCH_SECONDS) & 0xFFFFFFFF, signed_32(ttl), unsigned, clustering), at


def _read_items(data: bytes, at: int, header: Header, plan: Plan) -> tuple[tuple[Row | RangeMarker, ...], int]:
    """Rows and range markers up to the end of the partition, and the offset behind that."""
    items: list[Row | RangeMarker] = []
    while True:
        flags = data[at]
        if flags == END_OF_PARTITION:
            return tuple(items), at + 1
        if flags == IS_MARKER:
            marker, at = read_range_marker(data, at + 1, header)
            items.append(marker)
            continue
        row, at = read_row(data, at, header, plan, False)
        if not _is_empty(row):
            items.append(row)


def _is_empty(row: Row) -> bool:
    return not (row.cells or row.marker or row.deletion or row.column_deletions)
