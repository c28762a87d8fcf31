"""A change's identity: the same on every replica, after re-delivery, and under every version of the schema."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final

from tailrace_schemas.change import OPS, Bound, Change

_ABSENT: Final = b"\xff\xff\xff\xff"
_LIVE: Final = b"\x00"
_TOMBSTONE: Final = b"\x01"
_COLUMN_DELETION: Final = b"\x02"

# ClusteringPrefix.Kind ordinals of a range's ends.
START_KINDS: Final = {True: b"\x01", False: b"\x07"}
END_KINDS: Final = {True: b"\x06", False: b"\x00"}


def change_digest(change: Change) -> bytes:
    """16 bytes of BLAKE2b over the table id, the op and the fields below, each with a u32 length.

    Fields, in order: partition key; for a range the kind and values of both bounds, else the clustering values; row
    marker (written, ttl, expiry); deletion (written, local). Then come cells and collection deletions, sorted by column
    name and path: name, path, written, ttl, expiry or local deletion time, kind, bytes. An absent field has length
    2^32-1; integers are 8 bytes big-endian; clustering values have a length each within their field.
    docs/contracts.md section 3. Taken before filters and masks, over cells of dropped columns too.
    """
    parts = [change.table.id.bytes, bytes((OPS.index(change.op),)), _field(change.key)]
    if change.start is not None and change.end is not None:
        parts += [_bound(change.start, START_KINDS), _bound(change.end, END_KINDS)]
    else:
        parts.append(_ABSENT if change.clustering is None else _field(_values(change.clustering)))
    marker, deletion = change.marker, change.deletion
    parts += _ABSENT3 if marker is None else (_int(marker.written), _int(marker.ttl), _int(marker.expires))
    parts += _ABSENT2 if deletion is None else (_int(deletion.written), _int(deletion.local))
    for _, cell in sorted(_cells(change)):
        parts.append(cell)
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def mutation_digest(digests: Iterable[bytes]) -> bytes:
    """16 bytes over the digests of one table update's changes, in index order."""
    return hashlib.blake2b(b"".join(digests), digest_size=16).digest()


_ABSENT2: Final = (_ABSENT, _ABSENT)
_ABSENT3: Final = (_ABSENT, _ABSENT, _ABSENT)


def _cells(change: Change) -> Iterable[tuple[tuple[bytes, bytes], bytes]]:
    for deleted in change.column_deletions:
        name, deletion = deleted.column.name_bytes, deleted.deletion
        yield (
            (name, b""),
            b"".join(
                (
                    _field(name),
                    _ABSENT,
                    _int(deletion.written),
                    _ABSENT,
                    _int(deletion.local),
                    _field(_COLUMN_DELETION),
                    _ABSENT,
                )
            ),
        )
    for cell in change.cells:
        name, kind = cell.column.name_bytes, _TOMBSTONE if cell.value is None else _LIVE
        yield (
            (name, cell.path or b""),
            b"".join(
                (
                    _field(name),
                    _field(cell.path),
                    _int(cell.written),
                    _int(cell.ttl),
                    _int(cell.expires),
                    _field(kind),
                    _field(cell.value),
                )
            ),
        )


def _field(data: bytes | None) -> bytes:
    return _ABSENT if data is None else len(data).to_bytes(4, "big") + data


def _int(value: int | None) -> bytes:
    return _ABSENT if value is None else b"\x00\x00\x00\x08" + value.to_bytes(8, "big", signed=True)


def _values(values: tuple[bytes | None, ...]) -> bytes:
    return b"".join(map(_field, values))


def _bound(bound: Bound, kinds: dict[bool, bytes]) -> bytes:
    return _field(kinds[bound.inclusive]) + _field(_values(bound.values))
