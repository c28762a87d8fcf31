"""A frame's payload to the mutation it is: partition updates of one partition, decoded by their tables' definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from mypy_extensions import i64

from tailrace.commitlog.descriptor import VERSIONS, SegmentVersion
from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace.commitlog.plans import Plan, Shape, shape_of
from tailrace.commitlog.reader import (
    END_OF_PARTITION,
    HAS_PARTITION_DELETION,
    HAS_ROW_ESTIMATE,
    HAS_STATIC_ROW,
    IS_EMPTY,
    IS_MARKER,
    Reader,
    check_flags,
)
from tailrace.errors import UnknownTableError
from tailrace_schemas.change import Cell, ColumnDeletion, Deletion, Marker
from tailrace_schemas.cql.vint import read_unsigned
from tailrace_schemas.errors import CorruptError, DecodeError, TruncatedError, UnsupportedError
from tailrace_schemas.table import Table
from tailrace_schemas.transcode.row import NONE, NULL

_NO_COLUMNS: Final = Plan(())


def first_table(payload: bytes, version: int) -> tuple[int, UUID]:
    """(number of partition updates, table id of the first) without decoding anything.

    A mutation of one update whose table is not of interest can be left at that; with several, the later ids are only
    reached by decoding. Raises TruncatedError, CorruptError, UnsupportedError.
    """
    count, id = first_table_bytes(payload, version)
    return count, UUID(bytes=id)


def first_table_bytes(payload: bytes, version: int) -> tuple[int, bytes]:
    """`first_table` with the id as its 16 bytes, which takes a fraction of the time."""
    known = _known(version)
    if known.epochs:
        check_flags(payload)
    count, at = read_unsigned(payload, 1 if known.epochs else 0)
    if count == 0:
        raise CorruptError("mutation: no partition update")
    id = payload[at : at + 16]
    if len(id) < 16:
        raise TruncatedError("mutation: ends inside of a table id")
    return count, id


def open_payload(reader: Reader, payload: bytes, version: int) -> i64:
    """Begin to read a payload of a segment of this version: the number of its partition updates.

    Raises TruncatedError, CorruptError, UnsupportedError.
    """
    try:
        return reader.open(payload, _known(version))
    except IndexError:
        raise TruncatedError("mutation: it ends before the number of its partition updates") from None


def _known(version: int) -> SegmentVersion:
    known = VERSIONS.get(version)
    if known is None:
        raise UnsupportedError(f"mutations of segment version {version} are not read")
    return known


def decode_mutation(payload: bytes, version: int, tables: Callable[[UUID], Table | None]) -> Mutation:
    """Decode a frame's payload, written by a segment of this version (Mutation.MutationSerializer).

    `tables` gives the definition in force for a table id, or None. Cells of dropped columns are in; collections
    without deletion and cells are left out, and so are rows in which nothing is left.

    Raises UnknownTableError for an id without a definition (an update has no length, so nothing behind it can be
    read), UnknownColumnError, TruncatedError, CorruptError and UnsupportedError; nothing else, whatever the bytes. As
    the payload's checksum was right, these mean that a definition does not fit, rather than damage.
    """
    reader = Reader()
    updates: list[PartitionUpdate] = []
    count = open_payload(reader, payload, version)
    for _ in range(count):
        table_id = UUID(bytes=reader.table_id())
        table = tables(table_id)
        if table is None:
            raise UnknownTableError(table_id)
        try:
            updates.append(_read_update(reader, table))
        except (IndexError, DecodeError) as error:
            raise explained(error, table, len(payload)) from None
    expect_end(reader, count)
    return Mutation(updates=tuple(updates))


def explained(error: Exception, table: Table, size: int) -> Exception:
    """What was met in the bytes of a table's update, as the error that names the table."""
    if isinstance(error, DecodeError):
        error.rule = f"mutation of {table}: {error.rule}"
        error.offset = None
        return error
    return TruncatedError(f"mutation of {table}: {size} bytes end before its values do")


def expect_end(reader: Reader, count: int) -> None:
    """Raises CorruptError where bytes are left behind the last update."""
    if reader.at != reader.size:
        raise CorruptError(f"mutation: {reader.size - reader.at} bytes left behind the last of {count} updates")


def _read_update(reader: Reader, table: Table) -> PartitionUpdate:
    """The update behind its table id (UnfilteredRowIteratorSerializer)."""
    shape = shape_of(table)
    epoch = reader.epoch()
    known = None if epoch == NONE else epoch
    key = reader.key()
    flags = reader.flags()
    if flags & IS_EMPTY:
        return PartitionUpdate(table=table, key=key, epoch=known)
    reader.stats()
    statics = reader.plan(shape) if flags & HAS_STATIC_ROW else _NO_COLUMNS
    regulars = reader.plan(shape)
    deletion = reader.deletion() if flags & HAS_PARTITION_DELETION else None
    static: Row | None = None
    if flags & HAS_STATIC_ROW:
        reader.row(shape, statics, True)
        static = None if reader.cells.empty() else _row(reader, statics, True)
    if flags & HAS_ROW_ESTIMATE:
        reader.vint()
    items = _read_items(reader, shape, regulars)
    return PartitionUpdate(table=table, key=key, deletion=deletion, static=static, items=items, epoch=known)


def _read_items(reader: Reader, shape: Shape, plan: Plan) -> tuple[Row | RangeMarker, ...]:
    """Rows and range markers up to the end of the partition."""
    items: list[Row | RangeMarker] = []
    while True:
        flags: i64 = reader.data[reader.at]
        if flags == END_OF_PARTITION:
            reader.at += 1
            return tuple(items)
        if flags == IS_MARKER:
            items.append(reader.range_marker(shape))
            continue
        reader.row(shape, plan, False)
        if not reader.cells.empty():
            items.append(_row(reader, plan, False))


def _row(reader: Reader, plan: Plan, static: bool) -> Row:
    """The row that was read last, as an object."""
    data, cells = reader.data, reader.cells
    found: list[Cell] = []
    for at in range(cells.count):
        path = None if cells.path_start[at] == NULL else data[cells.path_start[at] : cells.path_end[at]]
        value = None if cells.start[at] == NULL else data[cells.start[at] : cells.end[at]]
        column = plan.columns[cells.column[at]]
        found.append(Cell(column, path, cells.written[at], _or_none(cells.ttl[at]), _or_none(cells.expires[at]), value))
    marker: Marker | None = None
    if cells.marked:
        marker = Marker(cells.row_written, _or_none(cells.row_ttl), _or_none(cells.row_expires))
    return Row(
        clustering=() if static else reader.clustering_values(),
        static=static,
        marker=marker,
        deletion=Deletion(cells.deleted_written, cells.deleted_local) if cells.deleted else None,
        cells=tuple(found),
        column_deletions=tuple(
            [
                ColumnDeletion(
                    plan.columns[cells.deletion_column[at]],
                    Deletion(cells.deletion_written[at], cells.deletion_local[at]),
                )
                for at in range(cells.deletions)
            ]
        ),
    )


def _or_none(value: i64) -> int | None:
    return None if value == NONE else value
