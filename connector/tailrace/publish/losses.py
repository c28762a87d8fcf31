"""Loss as an event in `<prefix>.progress`: which segments are missing, from where to where, and how sure that is."""

from __future__ import annotations

import json

from tailrace.position import Position
from tailrace.state.loss import Loss, Missing

VERSION = 1


def loss_record(cluster: str, host: str, loss: Loss, seen: int) -> tuple[bytes, bytes]:
    """Key and value. `seen` is when it was found, in milliseconds.

    Key `<cluster name>/<host id>/loss/<epoch>/<first missing segment>`, of what was retracted `.../retracted/...`;
    value {kind: lost | unknown | retracted, first, until: {epoch, segment, offset}, segments: [first, last], words,
    seen, version: 1}. What is missing stood behind `first` and before `until`, what was retracted up to it.
    """
    value = {
        "kind": loss.kind.value,
        "first": _place(loss.first),
        "until": _place(loss.until),
        "segments": list(loss.segments),
        "words": str(loss),
        "seen": seen,
        "version": VERSION,
    }
    what = "retracted" if loss.kind is Missing.RETRACTED else "loss"
    key = f"{cluster}/{host}/{what}/{loss.first.epoch}/{loss.segments[0]}"
    return key.encode(), json.dumps(value, separators=(",", ":")).encode()


def _place(at: Position) -> dict[str, int]:
    return {"epoch": at.epoch, "segment": at.segment, "offset": at.offset}
