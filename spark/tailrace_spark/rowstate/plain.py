"""Plain changes, most of all: live cells of simple columns, written at one time, without TTL. States without objects.

What the codec makes of such a change's state follows from the bytes of its cells alone, in a tenth of the time. So
does what merging makes of a state that has nothing else either, but for the times of its cells.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.cql.vint import read_signed, read_unsigned, write_signed, write_unsigned
from tailrace_spark.rowstate.codec import VERSION

_WITH_MARKER: Final = bytes((VERSION, 1))
_WITHOUT: Final = bytes((VERSION, 0))
_MARKER: Final = bytes(2)  # written at the base, no expiry
_ONE_BYTE: Final = 0x80  # vints below it are their own byte
_NO_EXPIRY: Final = bytes(1)
_VALUE, _OLDER_VALUE = 2, 18  # the codec's flags of a cell, with a time of its own or without
_ONE_OLDER_CELL: Final = bytes((0, 1, 18))
_ONE_LIVE_CELL: Final = bytes((0, 1, 2))  # a column without a deletion: one cell, which has nothing but a value


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
    parts: list[bytes] = []
    before = b""
    for cell in cells:
        value, name = cell.value, cell.column.name_bytes
        if value is None or cell.written != written or cell.ttl is not None or cell.path is not None:
            return None
        if name <= before or cell.expires is not None or cell.column.type.kind == "counter":
            return None
        before = name
        size = len(value)
        parts.append(_head(name))
        parts.append(_SMALL[size] if size < 128 else write_unsigned(size))
        parts.append(value)
    head = _WITHOUT if marker is None else _WITH_MARKER
    middle = b"" if marker is None else _MARKER
    return written, b"".join([head, write_signed(written), middle, write_unsigned(len(cells)), *parts])


class PlainRow:
    """A state of live cells without TTL, of simple columns: `names` sorted, `times` and `values` of the cells.

    `marker` is the row marker's write time, None without one; `newest` that of anything in it. Never changed.
    """

    def __init__(
        self, newest: int, marker: int | None, names: list[bytes], times: list[int], values: list[bytes]
    ) -> None:
        self.newest = newest
        self.marker = marker
        self.names = names
        self.times = times
        self.values = values

    def encoded(self) -> bytes:
        """encode_state of it."""
        base, marker = self.newest, self.marker
        parts = [_WITHOUT if marker is None else _WITH_MARKER, write_signed(base)]
        if marker is not None:
            parts.append(write_unsigned(base - marker))
            parts.append(_NO_EXPIRY)
        parts.append(write_unsigned(len(self.names)))
        last, age = base, b""  # cells that are older are mostly as old as each other
        for name, written, value in zip(self.names, self.times, self.values, strict=True):
            if written == base:
                parts.append(_head(name))
            else:
                if written != last:
                    last, age = written, write_unsigned(base - written)
                parts.append(_older_head(name))
                parts.append(age)
            size = len(value)
            parts.append(_SMALL[size] if size < 128 else write_unsigned(size))
            parts.append(value)
        return b"".join(parts)


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
    return PlainRow(newest, marker, names, times, values) if at == end else None


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
    names += known.names[at:]
    times += known.times[at:]
    values += known.values[at:]
    return PlainRow(max(known.newest, written), marker, names, times, values)


_SMALL: Final = [bytes((size,)) for size in range(128)]


@lru_cache(maxsize=65536)
def _head(name: bytes) -> bytes:
    """What stands before the value of a plain cell."""
    return write_unsigned(len(name)) + name + _ONE_LIVE_CELL


@lru_cache(maxsize=65536)
def _older_head(name: bytes) -> bytes:
    """What stands before the age of a plain cell that is older than the newest of its row."""
    return write_unsigned(len(name)) + name + _ONE_OLDER_CELL
