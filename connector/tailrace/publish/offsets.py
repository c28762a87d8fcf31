"""The agent's record in `<prefix>.offsets`: how far it has published, as UTF-8 JSON (docs/contracts.md section 1)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tailrace.capture.cdcraw import Quarantined, Resume
from tailrace.position import Position
from tailrace_schemas.errors import TailraceError

VERSION: Final = 1


class OffsetsError(TailraceError):
    """The record under our key is not one that this version can go on from."""


def offsets_key(cluster: str, host: str) -> bytes:
    """The record's key: `<cluster name>/<host id>`."""
    return f"{cluster}/{host}".encode()


def encode_offsets(resume: Resume) -> bytes:
    """{position: {epoch, segment, offset} | null, schema: the same, open: [[id, checksum]],
    quarantined: [[id, checksum, offset, why]], unread: [[first id, last id]], reported: the same, parked: [],
    version: 1}."""
    record = {
        "position": _place(resume.position),
        "schema": _place(resume.schema),
        "open": [list(key) for key in resume.open],
        "quarantined": [[q.segment, q.checksum, q.offset, q.reason] for q in resume.quarantined],
        "unread": [list(span) for span in resume.unread],
        "reported": [list(span) for span in resume.reported],
        "parked": [],
        "version": VERSION,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode_offsets(value: bytes) -> Resume:
    """The way back. Raises OffsetsError for a later version, and for anything that is no offsets record."""
    try:
        record = json.loads(value)
        if record["version"] > VERSION:
            raise OffsetsError(
                f"the offsets record has version {record['version']}, this Tailrace writes {VERSION}: "
                "run the newer Tailrace that wrote it"
            )
        return Resume(
            position=_position(record["position"]),
            schema=_position(record.get("schema")),
            open=tuple((int(segment), int(checksum)) for segment, checksum in record["open"]),
            quarantined=tuple(
                Quarantined(int(segment), int(checksum), int(offset), str(reason))
                for segment, checksum, offset, reason in record.get("quarantined", ())
            ),
            unread=_spans(record.get("unread", ())),
            reported=_spans(record.get("reported", ())),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OffsetsError(f"the offsets record is not one of ours ({error!r}): {value[:200]!r}") from error


def _spans(given: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in given)


def _place(at: Position | None) -> dict[str, int] | None:
    return None if at is None else {"epoch": at.epoch, "segment": at.segment, "offset": at.offset}


def _position(at: Mapping[str, Any] | None) -> Position | None:
    return None if at is None else Position(int(at["epoch"]), int(at["segment"]), int(at["offset"]))
