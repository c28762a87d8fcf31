"""The agent's record in `<prefix>.offsets`: how far it has published, as UTF-8 JSON (docs/contracts.md section 1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from tailrace.state import LotKey, Newest, Parked, Quarantined, Resume, Truncation
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.formats import json_object, require_format
from tailrace_schemas.position import Position, position_from_json, position_to_json
from tailrace_schemas.progress import Progress

VERSION: Final = 1

_NONSENSE: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError)

_PARKED: Final = b"/parked/"
# An agent's id ends with a random one, so that two starts of a process number differ ("The offsets record": agent).
_RANDOM: Final = re.compile(r",? ?[0-9a-f]{32}$")
_LOT: Final = re.compile(r"\d+/\d+/[0-9a-f-]{36}/\d+")


class OffsetsError(TailraceError):
    """The record under our key is not one that this version can go on from."""


class OffsetsLostError(OffsetsError):
    """`.offsets` has nothing under our key, not even a tombstone, and `.progress` says that it had."""

    def __init__(self, topics: tuple[str, str], progress: Progress) -> None:
        """`topics` are the names of `.offsets` and `.progress`."""
        offsets, progress_topic = topics
        time = datetime.fromtimestamp(progress.at / 1000, UTC).isoformat(timespec="seconds")
        aside = "".join(
            f", {count} {noun}"
            for count, noun in ((progress.parked, "parked mutations"), (progress.quarantined, "quarantined segments"))
            if count
        )
        super().__init__(
            f"{offsets} has no record of host {progress.host}, and {progress_topic} says that its agent had published "
            f"up to {progress.position} at {time}{aside}: the topic, or what was in it, was deleted. Nothing is "
            "published until that is settled, else everything in cdc_raw would be published a second time. "
            "`tailrace offsets restore`, on the node, finds in Kafka how far this host's changes are published, and "
            "lets its agent go on from there"
        )
        self.progress = progress


def offsets_key(cluster: str, host: str) -> bytes:
    """The record's key: `<cluster name>/<host id>`."""
    return f"{cluster}/{host}".encode()


def encode_offsets(resume: Resume, agent: str | None = None, records: int | None = None) -> bytes:
    """{position: {epoch, segment, offset} | null, schema: the same, open: [[id, checksum]],
    quarantined: [[id, checksum, offset, why]], unread: [[first id, last id]], reported: the same,
    truncations: [[table id, position, ms, [segment, offset], inferred]], truncated: [[table id, ms, inferred]] | null,
    metadata: [epoch, epoch | null] | null, agent: who wrote it | null, records: how many others its transaction has |
    null, version: 1}.

    Parked mutations have records of their own.
    """
    record = {
        "position": _position_json(resume.position),
        "schema": _position_json(resume.schema),
        "open": [list(key) for key in resume.open],
        "quarantined": [[q.segment, q.checksum, q.offset, q.reason] for q in resume.quarantined],
        "unread": [list(span) for span in resume.unread],
        "reported": [list(span) for span in resume.reported],
        "truncations": [
            [
                str(truncation.table_id),
                position_to_json(truncation.position),
                truncation.at,
                list(truncation.upto),
                truncation.inferred,
            ]
            for truncation in resume.truncations
        ],
        "truncated": None
        if resume.truncated is None
        else [[str(id), milliseconds, flag] for id, milliseconds, flag in resume.truncated],
        "metadata": resume.metadata,
        "agent": agent,
        "records": records,
        "version": VERSION,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode_offsets(value: bytes) -> Resume:
    """The way back. Raises OffsetsError for another version, and for anything that is no offsets record."""
    try:
        record = json_object(value)
        # Another format ends the start, where other records are skipped: this Tailrace would go on from less than it
        # says (reference/positions.md, "Records that are none").
        require_format("the offsets record", record["version"], VERSION, error=OffsetsError)
        return Resume(
            position=_optional_position(record["position"]),
            schema=_optional_position(record["schema"]),
            open=tuple((int(segment), int(checksum)) for segment, checksum in record["open"]),
            quarantined=tuple(
                Quarantined(int(segment), int(checksum), int(offset), str(reason))
                for segment, checksum, offset, reason in record["quarantined"]
            ),
            unread=_spans(record["unread"]),
            reported=_spans(record["reported"]),
            truncations=tuple(
                Truncation(position_from_json(position), UUID(id), int(ms), (int(upto[0]), int(upto[1])), bool(flag))
                for id, position, ms, upto, flag in record["truncations"]
            ),
            truncated=_newest(record["truncated"]),
            metadata=_epochs(record["metadata"]),
        )
    except _NONSENSE as error:
        raise OffsetsError(
            f"the offsets record is not one of ours ({type(error).__name__}: {str(error)[:200]}): {value[:200]!r}. "
            "`tailrace offsets set` writes another"
        ) from error


def records_of(value: bytes) -> int | None:
    """How many other records the transaction of a record has; None where it does not say, and for what is no record."""
    try:
        records = json_object(value)["records"]
        return None if records is None else int(records)
    except (ValueError, KeyError, TypeError, OverflowError):
        return None


def agent_of(value: bytes) -> str | None:
    """The id of the process that wrote a record; None where nobody signed it, and for what is no record."""
    try:
        agent = json_object(value)["agent"]
    except (ValueError, KeyError):
        return None
    return None if agent is None else str(agent)


def agent_name(id: str) -> str:
    """What people call the process of an agent's id: its machine and process, or that it was by hand."""
    return _RANDOM.sub("", id)


def parked_prefix(cluster: str, host: str) -> bytes:
    """What the keys of a host's lots of parked mutations begin with."""
    return offsets_key(cluster, host) + _PARKED


def parked_key(cluster: str, host: str, key: LotKey) -> bytes:
    """`<cluster name>/<host id>/parked/<epoch>/<segment>/<table id>/<first offset>`."""
    epoch, segment, table, first = key
    return parked_prefix(cluster, host) + f"{epoch}/{segment}/{table}/{first}".encode()


def host_key(key: bytes) -> tuple[str, str, bool] | None:
    """Cluster and host of a key, and whether it is a lot's; None for keys that are not ours."""
    text = key.decode(errors="replace")
    owner, _, lot = text.rpartition(_PARKED.decode())
    parked = bool(owner) and _LOT.fullmatch(lot) is not None
    cluster, slash, host = (owner if parked else text).rpartition("/")
    return (cluster, host, parked) if slash else None


def encode_parked(lot: Parked) -> bytes:
    """{checksum, offsets, since, reason, dead, version: 1}; the rest is its key."""
    record = {
        "checksum": lot.checksum,
        "offsets": list(lot.offsets),
        "since": lot.since,
        "reason": lot.reason,
        "dead": lot.dead,
        "version": VERSION,
    }
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode_parked(key: bytes, value: bytes) -> Parked:
    """The way back. Raises OffsetsError."""
    try:
        epoch, segment, table, first = key.decode().rsplit("/", 4)[1:]
        record = json_object(value)
        require_format(f"the record {key.decode()}", record["version"], VERSION, error=OffsetsError)
        return Parked(
            int(epoch),
            int(segment),
            int(record["checksum"]),
            UUID(table),
            int(first),
            tuple(int(offset) for offset in record["offsets"]),
            int(record["since"]),
            str(record["reason"]),
            bool(record["dead"]),
        )
    except _NONSENSE as error:
        raise OffsetsError(
            f"the record of parked mutations is not one of ours ({type(error).__name__}: {str(error)[:200]}): {key!r}"
        ) from error


def read_offsets(cluster: str, host: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> Resume:
    """Where a host's agent goes on, from the topic's committed keys and values in order. Raises OffsetsError."""
    own_key, beginning = offsets_key(cluster, host), parked_prefix(cluster, host)
    last = {key: value for key, value in records if key is not None and (key == own_key or key.startswith(beginning))}
    record = last.pop(own_key, None)
    # A tombstone says that no mutation of a lot is parked any more (reference/positions.md, "The offsets record").
    lots = (decode_parked(key, value) for key, value in last.items() if value is not None)
    resume = Resume() if record is None else decode_offsets(record)
    return replace(resume, parked=tuple(sorted(lots, key=lambda lot: lot.key)))


def _spans(spans: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(last)) for first, last in spans)


def _position_json(position: Position | None) -> dict[str, int] | None:
    return None if position is None else position_to_json(position)


def _optional_position(fields: Mapping[str, Any] | None) -> Position | None:
    return None if fields is None else position_from_json(fields)


def _epochs(stored: Sequence[Any] | None) -> tuple[int, int | None] | None:
    return None if stored is None else (int(stored[0]), None if stored[1] is None else int(stored[1]))


def _newest(stored: Sequence[Any] | None) -> tuple[Newest, ...] | None:
    return (
        None
        if stored is None
        else tuple((UUID(id), int(milliseconds), bool(flag)) for id, milliseconds, flag in stored)
    )
