"""The agent's record in `<prefix>.offsets`: how far it has published, as UTF-8 JSON (docs/contracts.md section 1)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from tailrace.capture.cdcraw import Quarantined, Resume
from tailrace.capture.truncation import Newest, Truncation
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
    quarantined: [[id, checksum, offset, why]], parked: [], truncations: [[table id, position, ms, [segment, offset],
    inferred]], truncated: [[table id, ms, inferred]] | null, metadata: [epoch, epoch | null]
    | null, version: 1}."""
    record = {
        "position": _place(resume.position),
        "schema": _place(resume.schema),
        "open": [list(key) for key in resume.open],
        "quarantined": [[q.segment, q.checksum, q.offset, q.reason] for q in resume.quarantined],
        "parked": [],
        "truncations": [
            [str(one.table_id), _place(one.position), one.at, list(one.upto), one.inferred]
            for one in resume.truncations
        ],
        "truncated": None if resume.truncated is None else [[str(id), at, flag] for id, at, flag in resume.truncated],
        "metadata": resume.metadata,
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
            truncations=tuple(
                Truncation(_place_of(at), UUID(id), int(ms), (int(upto[0]), int(upto[1])), bool(flag))
                for id, at, ms, upto, flag in record.get("truncations", ())
            ),
            truncated=_newest(record.get("truncated")),
            metadata=_epochs(record.get("metadata")),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OffsetsError(f"the offsets record is not one of ours ({error!r}): {value[:200]!r}") from error


def _place(at: Position | None) -> dict[str, int] | None:
    return None if at is None else {"epoch": at.epoch, "segment": at.segment, "offset": at.offset}


def _position(at: Mapping[str, Any] | None) -> Position | None:
    return None if at is None else _place_of(at)


def _place_of(at: Mapping[str, Any]) -> Position:
    return Position(int(at["epoch"]), int(at["segment"]), int(at["offset"]))


def _epochs(found: Sequence[Any] | None) -> tuple[int, int | None] | None:
    return None if found is None else (int(found[0]), None if found[1] is None else int(found[1]))


def _newest(found: Sequence[Any] | None) -> tuple[Newest, ...] | None:
    return None if found is None else tuple((UUID(id), int(at), bool(flag)) for id, at, flag in found)
