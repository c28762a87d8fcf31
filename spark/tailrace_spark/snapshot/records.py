"""The records of `<prefix>.snapshots`: what a snapshot publishes, and how far it is (docs/contracts.md 4). No I/O."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final
from uuid import UUID

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import json_object, packed, require_format
from tailrace_spark.snapshot.ranges import Intervals, from_pairs, pairs_of

FORMAT: Final = 1
ID_HEADER: Final = "tailrace.snapshot"
"""The header that has a snapshot's id, of each of its records in a table's topic."""
MARK_HEADER: Final = "tailrace.snapshot.mark"
"""The header that tells the marks of a partition: records without a value before its first and behind its last row."""


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot: its table and topic, and the ranges that it reads, which stay what they were at its start.

    `within` is the token range asked for, None: all. `started` and `ended` are milliseconds since the epoch; None: it
    has not ended. `cancelled`: another one took its place.
    """

    id: str
    table: str
    table_id: UUID
    topic: str
    within: str | None
    ranges: Intervals
    started: int
    ended: int | None = None
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class RangeRecord:
    """How far a range is. `changes` and `octets` (of keys and values) are out; all of them, where it is `done`.

    Else partitions with tokens up to `complete_to` are out as a whole. The next row is where the paging `state` says,
    and `last_key` is the partition of the last row that is out.
    """

    changes: int
    octets: int
    done: bool
    complete_to: int
    state: bytes | None = None
    last_key: bytes | None = None


def key_of(snapshot_id: str, index: int | None = None) -> bytes:
    """The key of a snapshot's record, or of that of one of its ranges, counted from 0."""
    return (snapshot_id if index is None else f"{snapshot_id}/{index}").encode()


def parse_key(key: bytes) -> tuple[str, int | None]:
    """The snapshot's id, and the range's number where the record is one of a range. Raises CorruptError."""
    snapshot_id, slash, index = key.decode(errors="replace").partition("/")
    if slash and not index.isdigit():
        raise CorruptError(f"{key[:80]!r} is no key of a snapshot")
    return snapshot_id, int(index) if slash else None


def encode_snapshot(record: SnapshotRecord) -> bytes:
    """Its JSON, compressed where it is long."""
    members = {member.name: getattr(record, member.name) for member in fields(record) if member.name != "id"}
    return packed(_json({**members, "table_id": str(record.table_id), "ranges": pairs_of(record.ranges)}))


def decode_snapshot(snapshot_id: str, value: bytes) -> SnapshotRecord:
    """The way back. Raises CorruptError for another format, and for anything that is no such record."""
    members = _members(value)
    try:
        return SnapshotRecord(
            snapshot_id,
            str(members["table"]),
            UUID(members["table_id"]),
            str(members["topic"]),
            None if members["within"] is None else str(members["within"]),
            from_pairs(members["ranges"]),
            int(members["started"]),
            None if members["ended"] is None else int(members["ended"]),
            bool(members["cancelled"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptError(f"the record of snapshot {snapshot_id[:80]!r}: {error}") from error


def encode_range(record: RangeRecord) -> bytes:
    """Its JSON."""
    members: dict[str, object] = {
        "changes": record.changes,
        "bytes": record.octets,
        "done": record.done,
        "complete_to": record.complete_to,
        "state": _text(record.state),
        "last_key": _text(record.last_key),
    }
    return _json(members)


def decode_range(value: bytes) -> RangeRecord:
    """The way back. Raises CorruptError for another format, and for anything that is no such record."""
    members = _members(value)
    try:
        return RangeRecord(
            int(members["changes"]),
            int(members["bytes"]),
            bool(members["done"]),
            int(members["complete_to"]),
            _octets(members["state"]),
            _octets(members["last_key"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptError(f"the record of a snapshot's range: {error}") from error


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _octets(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text, validate=True)


def _json(members: Mapping[str, object]) -> bytes:
    return json.dumps({**members, "format": FORMAT}, separators=(",", ":")).encode()


def _members(value: bytes) -> dict[str, Any]:
    try:
        members = json_object(value)
    except ValueError as error:
        raise CorruptError(f"a record of a snapshot: {error}") from error
    require_format("a record of a snapshot", members.get("format"), FORMAT, error=CorruptError)
    return members
