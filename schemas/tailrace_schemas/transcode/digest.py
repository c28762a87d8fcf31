"""The digest of a change from the numbers of its row; the rule in words is `digest.change_digest`'s."""

from __future__ import annotations

import hashlib
from typing import Final

from librt.strings import BytesWriter, write_i32_be, write_i64_be
from librt.vecs import vec
from mypy_extensions import i32, i64, u8

from tailrace_schemas.change import Bound
from tailrace_schemas.digest import END_KINDS, START_KINDS
from tailrace_schemas.transcode.plans import SIMPLE, ColumnPlan, RowPlan
from tailrace_schemas.transcode.primitives import copy_span
from tailrace_schemas.transcode.row import NONE, NULL, RowCells

_LIVE: Final = 0
_TOMBSTONE: Final = 1
_COLUMN_DELETION: Final = 2
_NO_FIELD: Final = -1
# No ttl, no expiry, one byte: live.
_LIVE_FOR_EVER: Final = b"\xff\xff\xff\xff" * 2 + b"\0\0\0\1\0"


class Digest:
    """Collects the fields of one change after the other, in the order of docs/contracts.md section 3."""

    def __init__(self) -> None:
        self._out = BytesWriter()
        # Copying a state takes less than making one.
        self._blank = hashlib.blake2b(digest_size=16)

    def begin(self, table_id: bytes, op: i64, key: bytes) -> None:
        """Table id, the op's index in the schema, partition key."""
        out = self._out
        out.truncate(0)
        out.write(table_id)
        out.append(u8(op))
        _put_field(out, key)

    def no_clustering(self) -> None:
        """A static row, or a whole partition."""
        write_i32_be(self._out, _NO_FIELD)

    def clustering(self, cells: RowCells, data: bytes) -> None:
        """The clustering values, as one field."""
        out = self._out
        size: i64 = 0
        index: i64 = 0
        while index < cells.clusterings:
            size += 4
            if cells.clustering_start[index] != NULL:
                size += cells.clustering_end[index] - cells.clustering_start[index]
            index += 1
        _put_size(out, size)
        index = 0
        while index < cells.clusterings:
            _put_span(out, data, cells.clustering_start[index], cells.clustering_end[index])
            index += 1

    def bounds(self, start: Bound, end: Bound) -> None:
        """Both ends of a range, in the place of clustering values."""
        _put_bound(self._out, START_KINDS[start.inclusive], start)
        _put_bound(self._out, END_KINDS[end.inclusive], end)

    def of_deletion(self, written: i64, local: i64) -> bytes:
        """The digest of a deletion: no row marker, no cells."""
        out = self._out
        for _ in range(3):
            write_i32_be(out, _NO_FIELD)
        _put_int(out, written)
        _put_int(out, local)
        return self._hashed()

    def of_row(self, cells: RowCells, data: bytes, plan: RowPlan, first: vec[i64]) -> bytes:
        """The digest of a row's data; `first` are the first cells of the plan's columns."""
        out = self._out
        if cells.marked:
            _put_int(out, cells.row_written)
            _put_int(out, cells.row_ttl)
            _put_int(out, cells.row_expires)
        else:
            for _ in range(3):
                write_i32_be(out, _NO_FIELD)
        write_i32_be(out, _NO_FIELD)
        write_i32_be(out, _NO_FIELD)
        for column_index in plan.by_name:
            column = plan.columns[column_index]
            if column.form != SIMPLE:
                _put_elements(out, cells, data, column, column_index, first[column_index])
            elif first[column_index] >= 0:
                _put_cell(out, cells, data, column.name, first[column_index])
        return self._hashed()

    def _hashed(self) -> bytes:
        state = self._blank.copy()
        state.update(self._out.getvalue())
        return state.digest()


def _put_size(out: BytesWriter, size: i64) -> None:
    write_i32_be(out, i32(size))


def _put_field(out: BytesWriter, data: bytes) -> None:
    _put_size(out, len(data))
    out.write(data)


def _put_span(out: BytesWriter, data: bytes, start: i64, end: i64) -> None:
    if start == NULL:
        write_i32_be(out, _NO_FIELD)
        return
    _put_size(out, end - start)
    copy_span(out, data, start, end)


def _put_int(out: BytesWriter, value: i64) -> None:
    if value == NONE:
        write_i32_be(out, _NO_FIELD)
        return
    write_i32_be(out, 8)
    write_i64_be(out, value)


def _put_bound(out: BytesWriter, kind: bytes, bound: Bound) -> None:
    _put_field(out, kind)
    values = BytesWriter()
    for value in bound.values:
        if value is None:
            write_i32_be(values, _NO_FIELD)
        else:
            _put_field(values, value)
    _put_field(out, values.getvalue())


def _put_cell(out: BytesWriter, cells: RowCells, data: bytes, name: bytes, cell: i64) -> None:
    out.write(name)
    _put_span(out, data, cells.path_start[cell], cells.path_end[cell])
    _put_int(out, cells.written[cell])
    start = cells.start[cell]
    if cells.ttl[cell] == NONE and cells.expires[cell] == NONE and start != NULL:
        out.write(_LIVE_FOR_EVER)
        _put_size(out, cells.end[cell] - start)
        copy_span(out, data, start, cells.end[cell])
        return
    _put_int(out, cells.ttl[cell])
    _put_int(out, cells.expires[cell])
    write_i32_be(out, 1)
    out.append(u8(_TOMBSTONE if start == NULL else _LIVE))
    _put_span(out, data, start, cells.end[cell])


def _put_elements(
    out: BytesWriter, cells: RowCells, data: bytes, column: ColumnPlan, column_index: i64, first: i64
) -> None:
    """The deletion and the cells of a multi-cell column, by path."""
    parts: list[tuple[bytes, bytes]] = []
    index: i64 = 0
    while index < cells.deletions:
        if cells.deletion_column[index] == column_index:
            element = BytesWriter()
            element.write(column.name)
            write_i32_be(element, _NO_FIELD)
            _put_int(element, cells.deletion_written[index])
            write_i32_be(element, _NO_FIELD)
            _put_int(element, cells.deletion_local[index])
            write_i32_be(element, 1)
            element.append(u8(_COLUMN_DELETION))
            write_i32_be(element, _NO_FIELD)
            parts.append((b"", element.getvalue()))
        index += 1
    index = first
    while index >= 0 and index < cells.count and cells.column[index] == column_index:
        element = BytesWriter()
        _put_cell(element, cells, data, column.name, index)
        start = cells.path_start[index]
        parts.append((b"" if start == NULL else data[start : cells.path_end[index]], element.getvalue()))
        index += 1
    for _, serialized in sorted(parts):
        out.write(serialized)
