"""Where the tables were last written to, of what was published: whether a change behind a place in the log was."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table_bytes
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

# Of mutations of several tables: TRUNCATE writes its record within a second or so of the place that it truncated up to.
_MOST: Final = 1024

PositionParts = tuple[int, int, int]
"""Epoch, segment and offset, as a Position has them; making one of each mutation would take longer."""


class PublishedPlaces:
    """What this process has published, table by table."""

    def __init__(self) -> None:
        self._last: dict[bytes, PositionParts] = {}
        self._of_several: deque[tuple[PositionParts, bytes]] = deque(maxlen=_MOST)

    def add(self, entries: Sequence[Entry]) -> None:
        """These mutations were published, in the order of the log."""
        last = self._last
        for entry in entries:
            try:
                tables, identity = first_table_bytes(entry.payload, entry.version)
            except DecodeError:
                continue  # it was set aside
            last[identity] = parts = (entry.epoch, entry.segment, entry.offset)
            if tables > 1:
                self._of_several.append((parts, entry.payload))

    def may_have(self, table_id: UUID, after: Position) -> bool:
        """Whether a change of a table behind `after` may be published already."""
        identity, parts = table_id.bytes, (after.epoch, after.segment, after.offset)
        if self._last.get(identity, parts) > parts:
            return True
        # A payload names its tables by their ids; other bytes that equal one would only make the answer a careful one.
        return any(published > parts and identity in payload for published, payload in self._of_several)
