"""Plain changes, most of all: live cells of simple columns, written at one time, without TTL. States without objects.

What the codec makes of such a change's state follows from the bytes of its cells alone, in a tenth of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tailrace_schemas.change import Change
from tailrace_schemas.cql.vint import write_signed, write_unsigned
from tailrace_spark.rowstate.codec import VERSION

_WITH_MARKER: Final = bytes((VERSION, 1))
_WITHOUT: Final = bytes((VERSION, 0))
_MARKER: Final = bytes(2)  # written at the base, no expiry
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


_SMALL: Final = [bytes((size,)) for size in range(128)]


@lru_cache(maxsize=65536)
def _head(name: bytes) -> bytes:
    """What stands before the value of a plain cell."""
    return write_unsigned(len(name)) + name + _ONE_LIVE_CELL
