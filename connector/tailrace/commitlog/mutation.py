"""A frame's payload to the mutation it is: partition updates of one partition, decoded by their tables' definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from uuid import UUID

from mypy_extensions import i64

from tailrace.commitlog.descriptor import VERSIONS, SegmentVersion
from tailrace.commitlog.model import Mutation, PartitionUpdate, RangeMarker, Row
from tailrace.commitlog.plans import HeaderPlan, TablePlan
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

_NO_COLUMNS: Final = HeaderPlan(())
# As a dictionary, which compiled code looks up in faster than in a mapping.
_VERSIONS: Final[dict[int, SegmentVersion]] = dict(VERSIONS)
# EncodingStats.TIMESTAMP_EPOCH: 2015-09-22T00:00:00Z in microseconds.
_EPOCH = 1_442_880_000_000_000


def first_table(payload: bytes, version: int) -> tuple[int, UUID]:
    """(number of partition updates, table id of the first) without decoding anything.

    A mutation of one update whose table is not of interest can be left at that. Of several updates, the later ids are
    only reached by decoding. Raises TruncatedError, CorruptError, UnsupportedError.
    """
    count, id = first_table_bytes(payload, version)
    return count, UUID(bytes=id)


def first_table_bytes(payload: bytes, version: int) -> tuple[int, bytes]:
    """`first_table` with the id as its 16 bytes, which takes a fraction of the time."""
    segment_version = _known(version)
    if segment_version.metadata_epochs:
        check_flags(payload)
    count, offset = read_unsigned(payload, 1 if segment_version.metadata_epochs else 0)
    if count == 0:
        raise CorruptError("mutation: no partition update")
    id = payload[offset : offset + 16]
    if len(id) < 16:
        raise TruncatedError("mutation: ends inside of a table id")
    return count, id


def first_metadata_epoch(payload: bytes, version: int) -> int | None:
    """The metadata epoch by which the first update was written, from version 9 on; None before.

    Raises as `first_table` does.
    """
    if not _known(version).metadata_epochs:
        return None
    _, offset = read_unsigned(payload, 1)
    return read_unsigned(payload, offset + 16)[0]


def _known(version: int) -> SegmentVersion:
    segment_version = _VERSIONS.get(version)
    if segment_version is None:
        raise UnsupportedError(f"mutations of segment version {version} are not read")
    return segment_version


class MutationVisitor:
    """What is made of a mutation."""

    def update(self, table_plan: TablePlan) -> UpdateVisitor:
        """What the next update of the mutation is for: one of a table with this plan."""
        raise NotImplementedError


class UpdateVisitor:
    """What is made of a partition update, part by part in the order of the log; this one makes nothing of it.

    Of a row, the reader's `cells` say what it holds, until the next one is read; rows that say nothing are left out.
    """

    def begin(self, key: bytes, metadata_epoch: int | None) -> None:
        """The partition key; the epoch of the cluster's metadata that the writer knew, None before version 9."""

    def delete_partition(self, deletion: Deletion) -> None:
        """The partition's own deletion."""

    def row(self, reader: Reader, plan: HeaderPlan, static: bool) -> None:
        """A row, or the static row: `plan` has the header's columns."""

    def mark(self, marker: RangeMarker) -> None:
        """A range tombstone's bound or boundary."""

    def end(self, streamed: bool) -> None:
        """All of it was read; `streamed`: nothing in it is as old as its head says (change.STREAMED)."""


def read_mutation(
    reader: Reader,
    payload: bytes,
    version: int,
    tables: Callable[[bytes], Table | None],
    visitor: MutationVisitor,
    dated: Callable[[bytes, int], Table | None] | None = None,
) -> None:
    """Read a payload of a segment of this version, each update with what `visitor` gives for its table's plan.

    `tables` gives the definition in force for the 16 bytes of a table id, or None. From version 9 on updates carry an
    epoch of the cluster's metadata: then `dated` is asked instead, if it is given. Raises what `decode_mutation`
    raises; what the visitors raise of DecodeError is taken for a fault of the bytes, too.
    """
    segment_version = _known(version)
    try:
        count = reader.open(payload, segment_version)
    except IndexError:
        raise TruncatedError("mutation: it ends before the number of its partition updates") from None
    for _ in range(count):
        # PartitionUpdateSerializer writes no length: where the table is unknown, the updates behind it cannot be found.
        id = reader.table_id()
        table = (
            tables(id)
            if dated is None or not segment_version.metadata_epochs
            else dated(id, _peeked_metadata_epoch(reader, payload))
        )
        if table is None:
            raise UnknownTableError(UUID(bytes=id))
        try:
            table_plan = reader.table_plan(table)
            update = visitor.update(table_plan)
            _read_update(reader, table_plan, update)
            # A client's write has its own least time in its head; what repair streams has that of a whole file
            # (change.STREAMED).
            update.end(not reader.has_least)
        except IndexError:
            size = len(payload)
            raise TruncatedError(f"mutation of {table}: {size} bytes end before its values do") from None
        except DecodeError as error:
            error.rule = f"mutation of {table}: {error.rule}"
            error.offset = None
            raise
    if reader.at != reader.size:
        raise CorruptError(f"mutation: {reader.size - reader.at} bytes left behind the last of {count} updates")


def _peeked_metadata_epoch(reader: Reader, payload: bytes) -> int:
    """The epoch that comes next, which is read again with the rest of the update."""
    return read_unsigned(payload, reader.at)[0]


def _read_update(reader: Reader, table_plan: TablePlan, visitor: UpdateVisitor) -> None:
    """The update behind its table id (UnfilteredRowIteratorSerializer)."""
    metadata_epoch = reader.metadata_epoch()
    visitor.begin(reader.key(), None if metadata_epoch == NONE else metadata_epoch)
    reader.has_least = True
    flags = reader.flags()
    if flags & IS_EMPTY:
        return
    # EncodingStats come before the columns, and all times and ttls of the update are differences from them.
    reader.stats()
    statics = reader.plan(table_plan) if flags & HAS_STATIC_ROW else _NO_COLUMNS
    regulars = reader.plan(table_plan)
    if flags & HAS_PARTITION_DELETION:
        deletion = reader.deletion()
        if deletion is not None:
            visitor.delete_partition(deletion)
    if flags & HAS_STATIC_ROW:
        reader.row(table_plan, statics, True)
        if not reader.cells.empty():
            visitor.row(reader, statics, True)
    # An estimate of the number of rows, for sizing buffers: the rows themselves end with END_OF_PARTITION.
    if flags & HAS_ROW_ESTIMATE:
        reader.vint()
    while True:
        kind: i64 = reader.data[reader.at]
        if kind == END_OF_PARTITION:
            reader.at += 1
            return
        if kind == IS_MARKER:
            visitor.mark(reader.range_marker(table_plan))
            continue
        reader.row(table_plan, regulars, False)
        if not reader.cells.empty():
            visitor.row(reader, regulars, False)


def decode_mutation(payload: bytes, version: int, tables: Callable[[UUID], Table | None]) -> Mutation:
    """Decode a frame's payload, written by a segment of this version (Mutation.MutationSerializer).

    `tables` gives the definition in force for a table id, or None. Cells of dropped columns are in; collections
    without deletion and cells are left out, and so are rows in which nothing is left.

    Raises UnknownTableError for an id without a definition: an update has no length, so nothing behind it can be read.
    Raises UnknownColumnError, TruncatedError, CorruptError and UnsupportedError; nothing else, whatever the bytes. As
    the payload's checksum was right, these mean that a definition does not fit, rather than damage.
    """
    visitor = _MutationObjects()
    read_mutation(Reader(), payload, version, lambda id: tables(UUID(bytes=id)), visitor)
    return Mutation(updates=tuple([update.made() for update in visitor.updates]))


class _MutationObjects(MutationVisitor):
    """Makes each update as an object."""

    def __init__(self) -> None:
        self.updates: list[_UpdateObjects] = []

    def update(self, table_plan: TablePlan) -> UpdateVisitor:
        update = _UpdateObjects(table_plan.table)
        self.updates.append(update)
        return update


class _UpdateObjects(UpdateVisitor):
    """Makes the update as an object."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._key = b""
        self._metadata_epoch: int | None = None
        self._deletion: Deletion | None = None
        self._static: Row | None = None
        self._items: list[Row | RangeMarker] = []
        self._streamed = False

    def begin(self, key: bytes, metadata_epoch: int | None) -> None:
        self._key = key
        self._metadata_epoch = metadata_epoch

    def delete_partition(self, deletion: Deletion) -> None:
        self._deletion = deletion

    def row(self, reader: Reader, plan: HeaderPlan, static: bool) -> None:
        if static:
            self._static = _row(reader, plan, True)
        else:
            self._items.append(_row(reader, plan, False))

    def mark(self, marker: RangeMarker) -> None:
        self._items.append(marker)

    def end(self, streamed: bool) -> None:
        self._streamed = streamed

    def made(self) -> PartitionUpdate:
        return PartitionUpdate(
            table=self._table,
            key=self._key,
            deletion=self._deletion,
            static=self._static,
            items=tuple(self._items),
            metadata_epoch=self._metadata_epoch,
            streamed=self._streamed,
        )


def _row(reader: Reader, plan: HeaderPlan, static: bool) -> Row:
    """The row that was read last, as an object."""
    data, cells = reader.data, reader.cells
    decoded: list[Cell] = []
    for index in range(cells.count):
        path = None if cells.path_start[index] == NULL else data[cells.path_start[index] : cells.path_end[index]]
        value = None if cells.start[index] == NULL else data[cells.start[index] : cells.end[index]]
        column = plan.columns[cells.column[index]]
        decoded.append(
            Cell(column, path, cells.written[index], _or_none(cells.ttl[index]), _or_none(cells.expires[index]), value)
        )
    marker: Marker | None = None
    if cells.marked:
        marker = Marker(cells.row_written, _or_none(cells.row_ttl), _or_none(cells.row_expires))
    return Row(
        clustering=() if static else reader.clustering_values(),
        static=static,
        marker=marker,
        deletion=Deletion(cells.deleted_written, cells.deleted_local) if cells.deleted else None,
        cells=tuple(decoded),
        column_deletions=tuple(
            [
                ColumnDeletion(
                    plan.columns[cells.deletion_column[index]],
                    Deletion(cells.deletion_written[index], cells.deletion_local[index]),
                )
                for index in range(cells.deletions)
            ]
        ),
    )


def _or_none(value: i64) -> int | None:
    return None if value == NONE else value


def oldest_write(payload: bytes, version: int) -> int | None:
    """The oldest write time in the mutation's first partition update, in microseconds, from its EncodingStats.

    None where it holds nothing that was written, or cannot be read.
    """
    try:
        segment_version = VERSIONS[version]
        _, offset = read_unsigned(payload, 1 if segment_version.metadata_epochs else 0)
        offset += 16
        if segment_version.metadata_epochs:
            _, offset = read_unsigned(payload, offset)
        size, offset = read_unsigned(payload, offset)
        flags = payload[offset + size]
        # An empty partition has no EncodingStats (UnfilteredRowIteratorSerializer writes nothing behind its flags).
        if flags & IS_EMPTY:
            return None
        delta, _ = read_unsigned(payload, offset + size + 1)
    except (DecodeError, IndexError, KeyError, ValueError):
        # ValueError: a length of more bits than an index of compiled code has.
        return None
    # The difference may be negative: it is taken modulo 2^64.
    written = delta + _EPOCH & (1 << 64) - 1
    return written - (1 << 64) if written >> 63 else written
