"""Plain changes, most of all: live cells of simple columns, written at one time, without TTL. States without objects.

What the codec makes of such a change's state follows from the bytes of its cells alone, in a tenth of the time. So
does what merging makes of a state that has nothing else either, but for the times of its cells.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter

from tailrace_schemas.change import Change
from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_spark.rowstate.codec import VERSION

_ONE_BYTE: Final = 0x80  # vints below it are their own byte
_VALUE, _OLDER_VALUE = 2, 18  # the codec's flags of a cell: of a value, written with the newest of its row or before


def plain_state(change: Change) -> tuple[int, bytes] | None:
    """The newest write time and encode_state(state_of(change)); None where the change is not a plain one."""
    if change.deletion is not None or change.column_deletions:
        return None
    marker, cells = change.marker, change.cells
    if marker is not None:
        if marker.ttl is not None or marker.expires is not None:
            return None
        written = marker.written
    elif cells:
        written = cells[0].written
    else:
        return None
    out = BytesWriter()
    _put_head(out, written, None if marker is None else written, len(cells))
    before = b""
    for cell in cells:
        value, column = cell.value, cell.column
        name = column.name_bytes
        if value is None or cell.written != written or cell.ttl is not None or cell.path is not None:
            return None
        if name <= before or cell.expires is not None or column.type.kind == "counter":
            return None
        before = name
        _put_cell(out, name, _VALUE, b"", value)
    return written, out.getvalue()


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


def plain_row(encoded: bytes) -> PlainRow | None:
    """The state of these bytes; None where it has anything else, or they are none that this version writes."""
    end = len(encoded)
    if end < 4 or encoded[0] != VERSION or encoded[1] > 1:
        return None
    newest, at = read_signed(encoded, 2)
    marker: int | None = None
    if encoded[1] == 1:
        age, at = read_unsigned(encoded, at)
        marker = newest - age
        if at >= end or encoded[at] != 0:
            return None
        at += 1
    count, at = read_unsigned(encoded, at)
    names: list[bytes] = []
    times: list[int] = []
    values: list[bytes] = []
    for _ in range(count):
        if at >= end:
            return None
        size = encoded[at]
        at += 1
        if size >= _ONE_BYTE:
            size, at = read_unsigned(encoded, at - 1)
        names.append(encoded[at : at + size])
        at += size
        if at + 4 > end or encoded[at] != 0 or encoded[at + 1] != 1:
            return None
        flags = encoded[at + 2]
        at += 3
        written = newest
        if flags == _OLDER_VALUE:
            age, at = read_unsigned(encoded, at)
            written = newest - age
            if at >= end:
                return None
        elif flags != _VALUE:
            return None
        size = encoded[at]
        at += 1
        if size >= _ONE_BYTE:
            size, at = read_unsigned(encoded, at - 1)
        values.append(encoded[at : at + size])
        times.append(written)
        at += size
    return PlainRow(newest, marker, names, times, values, encoded) if at == end else None


def plain_merge(known: PlainRow, change: Change, written: int) -> PlainRow:
    """What a state knows with a plain change that was written at `written`: absorb(state_of(change))."""
    marker = known.marker
    if change.marker is not None and (marker is None or marker < written):
        marker = written
    names: list[bytes] = []
    times: list[int] = []
    values: list[bytes] = []
    at, end = 0, len(known.names)
    for cell in change.cells:
        name, value = cell.column.name_bytes, cell.value or b""
        while at < end and known.names[at] < name:
            names.append(known.names[at])
            times.append(known.times[at])
            values.append(known.values[at])
            at += 1
        time = written
        if at < end and known.names[at] == name:
            before = known.times[at]
            # The newer holds, at a tie the larger (rowstate.cells).
            if before > written or (before == written and known.values[at] > value):
                time, value = before, known.values[at]
            at += 1
        names.append(name)
        times.append(time)
        values.append(value)
    while at < end:
        names.append(known.names[at])
        times.append(known.times[at])
        values.append(known.values[at])
        at += 1
    newest = max(known.newest, written)
    return PlainRow(newest, marker, names, times, values, _encoded(newest, marker, names, times, values))


def _encoded(newest: int, marker: int | None, names: list[bytes], times: list[int], values: list[bytes]) -> bytes:
    out = BytesWriter()
    _put_head(out, newest, marker, len(names))
    last, age = newest, b""  # cells that are older are mostly as old as each other
    for at in range(len(names)):
        written = times[at]
        if written == newest:
            _put_cell(out, names[at], _VALUE, b"", values[at])
            continue
        if written != last:
            last, age = written, write_unsigned(newest - written)
        _put_cell(out, names[at], _OLDER_VALUE, age, values[at])
    return out.getvalue()


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


def _put(out: BytesWriter, number: int) -> None:
    if number < _ONE_BYTE:
        out.append(number)
    else:
        out.write(write_unsigned(number))
