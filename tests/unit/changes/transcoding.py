"""Recorded mutations, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

from tailrace.commitlog.descriptor import read_descriptor
from tailrace.commitlog.frames import frames
from tailrace_schemas.change import Origin, Source
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tests.unit.commitlog.recorded import recorded, sections_of

SOURCE = Source("host", "dc", Position(3, 1795271362996, 77), 0, 0, Origin.REPLAY, False, 1795271362997, 1)
Definitions = Callable[[UUID], Table | None]
Sent = list[tuple[str, int, bytes, bytes]]


def payloads(kind: str) -> Iterable[tuple[bytes, int]]:
    for data in recorded(kind).segments.values():
        version = read_descriptor(data).version
        for section in sections_of(data):
            for frame in frames(section):
                yield frame.payload, version
