"""A clock that stands still, and what expires by it."""

from __future__ import annotations

from dataclasses import replace

from tailrace_schemas.change import Change, Marker

SECOND = 1_000_000


class Time:
    """A clock that stands still."""

    def __init__(self, now: int = 100) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def expiring(change: Change, expires: int, ttl: int = 10) -> Change:
    """The change as USING TTL writes it."""
    cells = tuple(replace(cell, ttl=ttl, expires=expires) for cell in change.cells)
    marker = None if change.marker is None else Marker(change.marker.written, ttl, expires)
    return replace(change, cells=cells, marker=marker)
