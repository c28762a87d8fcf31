"""Losses as records of `<prefix>.progress`: what is missing, from where to where, how sure that is, who has seen it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.state import Loss, Missing
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.formats import json_object, require_format
from tailrace_schemas.position import Position

VERSION: Final = 1

_NONSENSE: Final = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
_KEY: Final = re.compile(r"(?P<cluster>.+)/(?P<host>[^/]+)/(?P<id>(?:loss|retracted)/\d+/-?\d+)", re.DOTALL)
# The record has to fit its topic, whatever the number of tables.
_MOST_TABLES: Final = 100


@dataclass(frozen=True, slots=True)
class ReportedLoss:
    """A loss that `.progress` has. `id` is its key behind the host's: `loss/<epoch>/<segment>`, or `retracted/...`.

    `kind`: lost, unknown or retracted. What is missing stood behind `first` and before `until`. `tables`: those that
    may be concerned, a hundred at most; empty where nobody knows. `seen` and `acknowledged` are milliseconds since
    1970; None: nobody has acknowledged it.
    """

    cluster: str
    host: str
    id: str
    kind: str
    words: str
    seen: int
    segments: tuple[int, int]
    first: Position
    until: Position
    tables: tuple[str, ...]
    acknowledged: int | None = None

    @property
    def cause(self) -> str:
        """Its name in health."""
        return cause_of(self.id)


def cause_of(id: str) -> str:
    """A loss's name in health, by its id."""
    return f"loss of {id.rpartition('/')[2]}"


def loss_words(words: str) -> str:
    """What health says of a loss until somebody acknowledges it."""
    return f"{words}. `tailrace losses acknowledge` ends this message"


def loss_id(loss: Loss) -> str:
    """The id of missing segments."""
    kind = "retracted" if loss.kind is Missing.RETRACTED else "loss"
    return f"{kind}/{loss.first.epoch}/{loss.segments[0]}"


def loss_record(cluster: str, host: str, loss: Loss, found_at: int, tables: Iterable[str] = ()) -> tuple[bytes, bytes]:
    """Key and value. `found_at` is in milliseconds; `tables` are those of which changes may be missing.

    Key `<cluster name>/<host id>/loss/<epoch>/<first missing segment>`, of what was retracted `.../retracted/...`.
    Value {kind: lost | unknown | retracted, first, until: {epoch, segment, offset}, segments: [first, last], tables,
    words, seen, acknowledged (ms, where somebody has), version: 1}. What is missing stood behind `first` and before
    `until`, what was retracted up to it.
    """
    value = {
        "kind": loss.kind.value,
        "first": _place(loss.first),
        "until": _place(loss.until),
        "segments": list(loss.segments),
        "tables": sorted(tables)[:_MOST_TABLES],
        "words": str(loss),
        "seen": found_at,
        "version": VERSION,
    }
    # A loss that is found again has the same key, so that compaction keeps one record of it.
    return f"{cluster}/{host}/{loss_id(loss)}".encode(), _encoded(value)


def decode_loss(key: bytes, value: bytes) -> ReportedLoss | None:
    """The way back; None under a key that is no loss's. Raises CorruptError for what is no record of ours, or of
    another version."""
    match = _KEY.fullmatch(key.decode(errors="replace"))
    if match is None:
        return None
    try:
        record = json_object(value)
        require_format(f"the loss {key!r}", record["version"], VERSION, error=CorruptError)
        (begin, end), acknowledged = record["segments"], record.get("acknowledged")
        return ReportedLoss(
            match["cluster"],
            match["host"],
            match["id"],
            str(record["kind"]),
            str(record["words"]),
            int(record["seen"]),
            (int(begin), int(end)),
            _position(record["first"]),
            _position(record["until"]),
            tuple(str(table) for table in record["tables"]),
            None if acknowledged is None else int(acknowledged),
        )
    except _NONSENSE as error:
        words = f"{type(error).__name__}: {str(error)[:200]}"
        raise CorruptError(f"the loss {key!r}: {words} in {value[:200]!r}") from error


def acknowledged(value: bytes, milliseconds: int) -> bytes:
    """The value of a loss's record, once somebody has acknowledged the loss."""
    return _encoded({**json_object(value), "acknowledged": milliseconds})


def _encoded(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _place(position: Position) -> dict[str, int]:
    return {"epoch": position.epoch, "segment": position.segment, "offset": position.offset}


def _position(record: Mapping[str, Any]) -> Position:
    return Position(int(record["epoch"]), int(record["segment"]), int(record["offset"]))
