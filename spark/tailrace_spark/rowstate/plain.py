"""Plain changes, the most frequent ones, merged as bytes: live cells of simple columns, of one time, without TTL."""

# The bytes that the codec makes of such a change's state follow from its cells alone, in a tenth of the time. Merging
# it into a stored state that has nothing else either needs only the times of the cells besides.

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter

from tailrace_schemas.change import Cell, Change
from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_spark.rowstate.codec import VERSION

_ONE_BYTE: Final = 0x80  # vints below it are their own byte
_VALUE, _OLDER_VALUE = 2, 18  # the codec's flags of a cell: of a value, written with the newest of its row or before


def plain_state(change: Change) -> tuple[int, bytes] | None:
    """The newest write time and encode_state(state_of(change)); None where the change is not a plain one."""
    written = _written(change)
    if written is None:
        return None
    out = BytesWriter()
    _put_head(out, written, None if change.marker is None else written, len(change.cells))
    previous_name = b""
    for cell in change.cells:
        value, name = cell.value, cell.column.name_bytes
        if value is None or name <= previous_name or not _is_plain(cell, written):
            return None
        previous_name = name
        _put_cell(out, name, _VALUE, b"", value)
    return written, out.getvalue()


def plain_time(change: Change) -> int | None:
    """The write time of all of a change; None where it is not a plain one."""
    written = _written(change)
    if written is None:
        return None
    previous_name = b""
    for cell in change.cells:
        name = cell.column.name_bytes
        if cell.value is None or name <= previous_name or not _is_plain(cell, written):
            return None
        previous_name = name
    return written


def plain_newest(encoded: bytes) -> int:
    """The newest write time (row.Newest) in a plain state's bytes; of other bytes any number. Raises TruncatedError."""
    return read_signed(encoded, 2)[0]


def _written(change: Change) -> int | None:
    """The write time that all of a change has if it is plain; None where it cannot be."""
    # The record's time (`record_times`) without looking for the newest cell: a plain change has one time throughout,
    # which the callers check cell by cell anyway.
    if change.deletion is not None or change.column_deletions or change.table.is_strict:
        return None
    marker = change.marker
    if marker is not None:
        return None if marker.ttl is not None or marker.expires is not None else marker.written
    return change.cells[0].written if change.cells else None


def _is_plain(cell: Cell, written: int) -> bool:
    if cell.written != written or cell.ttl is not None or cell.path is not None or cell.expires is not None:
        return False
    return cell.column.type.kind != "counter"


class PlainRow:
    """A state of live cells without TTL, of simple columns: `names` sorted, `times` and `values` of the cells.

    `marker` is the row marker's write time, None without one; `newest` that of anything in it; `encoded` all of it, as
    encode_state has it. Never changed.
    """

    def __init__(
        self,
        newest: int,
        marker: int | None,
        names: list[bytes],
        times: list[int],
        values: list[bytes],
        encoded: bytes,
    ) -> None:
        self.newest = newest
        self.marker = marker
        self.names = names
        self.times = times
        self.values = values
        self.encoded = encoded


class _Cells:
    """The cells of a state in the making, as they are and as encode_state has them."""

    def __init__(self, newest: int) -> None:
        self.names: list[bytes] = []
        self.times: list[int] = []
        self.values: list[bytes] = []
        self.out: BytesWriter = BytesWriter()
        self._newest = newest
        self._last = newest
        self._age: bytes = b""  # cells that are older are mostly as old as each other

    def put(self, name: bytes, written: int, value: bytes) -> None:
        self.names.append(name)
        self.times.append(written)
        self.values.append(value)
        if written == self._newest:
            _put_cell(self.out, name, _VALUE, b"", value)
            return
        if written != self._last:
            self._last, self._age = written, write_unsigned(self._newest - written)
        _put_cell(self.out, name, _OLDER_VALUE, self._age, value)


def plain_merge(stored: bytes, change: Change, written: int) -> PlainRow | None:
    """A stored state merged with a plain change of the time `written`, as absorb(state_of(change)) merges it.

    None where the state has anything but plain cells, or its bytes are none that this version writes. Raises
    TruncatedError for some of these.
    """
    # Both sides are sorted by column name, so one pass merges them. Lengths and ages are nearly always one byte, which
    # is read in place: a call for each would take most of the time.
    end = len(stored)
    if end < 4 or stored[0] != VERSION or stored[1] > 1:
        return None
    stored_newest, offset = read_signed(stored, 2)
    marker: int | None = None
    if stored[1] == 1:
        age, offset = read_unsigned(stored, offset)
        marker = stored_newest - age
        if offset >= end or stored[offset] != 0:
            return None
        offset += 1
    if change.marker is not None and (marker is None or marker < written):
        marker = written
    newest = stored_newest if stored_newest > written else written
    row = _Cells(newest)
    incoming, index, cell_count = change.cells, 0, len(change.cells)
    incoming_name = incoming[0].column.name_bytes if cell_count else b""
    count, offset = read_unsigned(stored, offset)
    for _ in range(count):
        if offset >= end:
            return None
        size = stored[offset]
        offset += 1
        if size >= _ONE_BYTE:
            size, offset = read_unsigned(stored, offset - 1)
        name = stored[offset : offset + size]
        offset += size
        if offset + 4 > end or stored[offset] != 0 or stored[offset + 1] != 1:
            return None
        flags = stored[offset + 2]
        offset += 3
        value_written = stored_newest
        if flags == _OLDER_VALUE:
            age, offset = read_unsigned(stored, offset)
            value_written = stored_newest - age
            if offset >= end:
                return None
        elif flags != _VALUE:
            return None
        size = stored[offset]
        offset += 1
        if size >= _ONE_BYTE:
            size, offset = read_unsigned(stored, offset - 1)
        value = stored[offset : offset + size]
        offset += size
        while index < cell_count and incoming_name != name and incoming_name < name:
            row.put(incoming_name, written, incoming[index].value or b"")
            index += 1
            incoming_name = incoming[index].column.name_bytes if index < cell_count else b""
        if index < cell_count and incoming_name == name:
            incoming_value = incoming[index].value or b""
            # Cells.resolveRegular of two plain cells: the newer wins, at a tie the larger bytes.
            if not (value_written > written or (value_written == written and value > incoming_value)):
                value_written, value = written, incoming_value
            index += 1
            incoming_name = incoming[index].column.name_bytes if index < cell_count else b""
        row.put(name, value_written, value)
    if offset != end:
        return None
    while index < cell_count:
        row.put(incoming[index].column.name_bytes, written, incoming[index].value or b"")
        index += 1
    head = BytesWriter()
    _put_head(head, newest, marker, len(row.names))
    head.write(row.out.getvalue())
    return PlainRow(newest, marker, row.names, row.times, row.values, head.getvalue())


def _put_head(out: BytesWriter, newest: int, marker: int | None, cells: int) -> None:
    out.append(VERSION)
    out.append(0 if marker is None else 1)
    out.write(write_signed(newest))
    if marker is not None:
        _put(out, newest - marker)
        out.append(0)  # no expiry
    _put(out, cells)


def _put_cell(out: BytesWriter, name: bytes, flags: int, age: bytes, value: bytes) -> None:
    """A column without a deletion, of one cell."""
    _put(out, len(name))
    out.write(name)
    out.append(0)
    out.append(1)
    out.append(flags)
    out.write(age)
    _put(out, len(value))
    out.write(value)


def _put(out: BytesWriter, value: int) -> None:
    if value < _ONE_BYTE:
        out.append(value)
    else:
        out.write(write_unsigned(value))
