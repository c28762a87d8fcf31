"""The records of `<prefix>.progress`: how far each host's changes are published (docs/contracts.md section 1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import json_object, require_format
from tailrace_schemas.position import Position, position_from_json, position_to_json

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """No change of this host at or below `position` is unseen: it is published, or counted in one of the last two.

    `at`: the agent's clock, in milliseconds. `caught_up`: nothing else had been released to the agent by then.
    `durable`: up to there no crash of the node can take changes back. `parked` mutations wait for a definition or a
    topic, and are published later; `quarantined` segments are read up to their damage only. `complete_to`: what had
    been released to the agent by then, in milliseconds of its clock, is at or below `position`. It is None where the
    agent has not come so far yet. `name` is the node's, or its address, for people.
    """

    cluster: str
    host: str
    position: Position
    durable: Position
    at: int
    caught_up: bool = False
    parked: int = 0
    quarantined: int = 0
    complete_to: int | None = None
    name: str | None = None

    def age(self, now: float) -> float:
        """Seconds since it was written, by our clock, which is `now`, in seconds; never below 0."""
        return max(0.0, now - self.at / 1000)


def has_read(progress: Progress) -> bool:
    """Whether the host's agent has a position: behind a segment, or in another log epoch than the first."""
    return progress.position.segment >= 0 or progress.position.epoch > 1


def progress_key(cluster: str, host: str) -> bytes:
    """`<cluster name>/<host id>`."""
    return f"{cluster}/{host}".encode()


def encode_progress(progress: Progress) -> bytes:
    """{position: {epoch, segment, offset}, durable: the same, at, caught_up, parked, quarantined, complete_to and
    name where they are known, format: 1}."""
    record: dict[str, object] = {
        "position": position_to_json(progress.position),
        "durable": position_to_json(progress.durable),
        "at": progress.at,
        "caught_up": progress.caught_up,
        "parked": progress.parked,
        "quarantined": progress.quarantined,
        "format": FORMAT,
    }
    if progress.complete_to is not None:
        record["complete_to"] = progress.complete_to
    if progress.name is not None:
        record["name"] = progress.name
    return json.dumps(record, separators=(",", ":")).encode()


def decode_progress(key: bytes, value: bytes) -> Progress:
    """The way back. Raises CorruptError for another format, and for anything that is no progress record."""
    cluster, slash, host = key.decode(errors="replace").rpartition("/")
    try:
        record = json_object(value)
        require_format(f"the progress of {key!r}", record["format"], FORMAT, error=CorruptError)
        if not slash:
            raise ValueError("its key has no host")
        return Progress(
            cluster,
            host,
            position_from_json(record["position"]),
            position_from_json(record["durable"]),
            int(record["at"]),
            bool(record["caught_up"]),
            int(record["parked"]),
            int(record["quarantined"]),
            None if record.get("complete_to") is None else int(record["complete_to"]),
            None if record.get("name") is None else str(record["name"]),
        )
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        words = f"{type(error).__name__}: {str(error)[:200]}"
        raise CorruptError(f"progress of {key!r}: {words} in {value[:200]!r}") from error
