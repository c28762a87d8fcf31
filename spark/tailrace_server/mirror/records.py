"""The records of `<prefix>.subscriptions` (docs/contracts.md 4). No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tailrace_schemas.errors import CorruptError

FORMAT: Final = 1
LAST: Final = b"last"
"""The key of the record that has the largest id."""


@dataclass(frozen=True, slots=True)
class MirrorRecord:
    """A record on its way to Kafka; without a value it is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None = field(repr=False)
    partition: int = 0


@dataclass(slots=True)
class Mirrored:
    """What a topic says: the rows of each subscription by its key, and the largest id."""

    rows: dict[bytes, list[tuple[str, Any]]] = field(default_factory=dict, repr=False)
    last: int = 0


def record_of(topic: str, identity: int, rows: Iterable[tuple[str, Any]]) -> MirrorRecord:
    """The record of a subscription; of one without rows, which is cancelled, a tombstone."""
    listed = [{"table": name, "row": row} for name, row in rows]
    value = json.dumps({"format": FORMAT, "rows": listed}, ensure_ascii=False).encode() if listed else None
    return MirrorRecord(topic, str(identity).encode(), value)


def last_record(topic: str, last: int) -> MirrorRecord:
    """The record of the largest id: no id comes again, also of what was cancelled long ago."""
    return MirrorRecord(topic, LAST, json.dumps({"format": FORMAT, "last": last}).encode())


def mirrored(records: Iterable[tuple[bytes | None, bytes | None]]) -> Mirrored:
    """What keys and values say, in their order. Raises CorruptError for a record that cannot be read."""
    content = Mirrored()
    for key, value in records:
        if key is None:
            continue
        content.rows.pop(key, None)
        if value is None:
            continue
        try:
            tree = json.loads(value)
            if tree["format"] != FORMAT:
                raise CorruptError(f"a record of subscriptions, key {key!r}: of format {tree['format']}, not {FORMAT}")
            if key == LAST:
                content.last = max(content.last, int(tree["last"]))
            else:
                content.rows[key] = [(str(item["table"]), item["row"]) for item in tree["rows"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptError(f"a record of subscriptions, key {key!r}, cannot be read: {error!r}") from None
    return content
