"""A commit log and the reading of it in memory: a released segment is gone, the log outlives a `Crash`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.commitlog.frames import Entry
from tailrace.state import Loss, Quarantined, Resume, SegmentKey, Span, spans
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position
from tests.support.kafka import Faults


@dataclass(slots=True)
class MemoryLog:
    """Segments by id: each a list of serialized mutations, all released by the index.

    A mutation's position is its place from 1. `plain` are segments that have no index, as they hold no changes,
    `gone` ones that are deleted, and have a file again once they are kept, `losses` is what is missing and was not
    told. `durable` is how far the node has flushed where changes are published ahead of that. Steps of its captures:
    read, release (before), released (after).
    """

    segments: dict[int, list[bytes]] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    version: int = 7
    durable: Position | None = None
    losses: tuple[Loss, ...] = ()

    def append(self, segment: int, payloads: Iterable[bytes], final: bool = True) -> None:
        """More mutations for a segment; a final one gets no others."""
        self.segments.setdefault(segment, []).extend(payloads)
        if final:
            self.final.add(segment)


class MemoryCapture:
    """A Capture of MemoryLog."""

    def __init__(self, log: MemoryLog, resume: Resume, faults: Faults) -> None:
        self._log = log
        self._faults = faults
        self._at = resume.position or Position(1, -1, 0)
        self._open = set(resume.open)
        self.quarantined: dict[int, Quarantined] = {q.segment: q for q in resume.quarantined}
        self._told = -1
        self._kept: frozenset[int] = frozenset()
        self.durable = log.durable
        self.unjudged: Position | None = None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What is missing."""
        return self._log.losses

    def read(self, limit: int) -> list[Entry]:
        """What follows, in order."""
        self._faults.at("read")
        entries: list[Entry] = []
        for segment in sorted(self._log.segments):
            if segment < self._at.segment or segment in self.quarantined or segment in self._log.plain:
                continue
            self._open.add((segment, segment))
            start = self._at.offset if segment == self._at.segment else 0
            for number, payload in enumerate(self._log.segments[segment][start:], start + 1):
                if len(entries) == limit:
                    return entries
                self._at = Position(1, segment, number)
                entries.append(entry_at(self._at, payload, self._log.version))
        return entries

    def keep(self, segments: frozenset[int]) -> None:
        """Release none of these."""
        self._kept = segments

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]:
        """Those of them that the log still has."""
        self._faults.at("reread")
        payloads = self._log.segments.get(segment, []) if checksum == segment else []
        for number, payload in enumerate(payloads, 1):
            if number in offsets:
                yield entry_at(Position(epoch, segment, number), payload, self._log.version)

    def may_hold(self, table_id: UUID, after: Position, until: Position) -> bool:
        """Whether a mutation between them names the table, or is gone."""
        if after.segment not in self._log.segments:
            return True
        return any(
            after < Position(1, segment, number) <= until and table_id.bytes in payload
            for segment, payloads in self._log.segments.items()
            for number, payload in enumerate(payloads, 1)
        )

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """Every segment read that has a file."""
        return tuple(sorted(key for key in self._open if key[0] not in self._log.gone - self._kept))

    def unread(self, position: Position | None) -> tuple[Span, ...]:
        """Every segment of the log that is not at or below the position."""
        return spans(set(self._log.segments) - self._log.plain - set(self._ended(position)))

    def reported(self, position: Position | None) -> tuple[Span, ...]:
        """None are missing."""
        del position
        return ()

    def news(self, position: Position) -> bool:
        """Whether a segment has ended, or something is missing."""
        return bool(self.losses) or max(self._ended(position), default=-1) > self._told

    def committed(self, position: Position | None, losses: Collection[Loss]) -> None:
        """These are told."""
        self._told = max((self._told, *self._ended(position)))
        self._log.losses = tuple(loss for loss in self.losses if loss not in losses)

    def finished(self, position: Position) -> bool:
        """Whether a final segment ends at or below the position, and is not kept."""
        return bool(set(self._ended(position)) - self._kept)

    def passed(self, position: Position, *, settled: bool) -> bool:
        """Whether everything up to there was read."""
        later = [id for id in self._log.segments if id not in self._log.plain and id not in self.quarantined]
        unread = [
            id
            for id in later
            if id > self._at.segment or (id == self._at.segment and len(self._log.segments[id]) > self._at.offset)
        ]
        return self._at >= position or (settled and not any(id <= position.segment for id in unread))

    def release(self, position: Position) -> tuple[int, ...]:
        """Delete final segments that end at or below the position."""
        done = [one for one in self._ended(position) if one <= self._told and one not in self._kept]
        for segment in done:
            self._faults.at("release")
            del self._log.segments[segment]
            self._faults.at("released")
        return tuple(done)

    def quarantine(self, position: Position, error: DecodeError) -> None:
        """Read it no further."""
        self.quarantined[position.segment] = Quarantined(position.segment, 0, position.offset, str(error))

    def close(self) -> None:
        """Nothing to close."""

    def _ended(self, position: Position | None) -> list[int]:
        if position is None:
            return []
        return [
            segment
            for segment, payloads in sorted(self._log.segments.items())
            if segment in self._log.final
            and segment not in self.quarantined
            and segment not in self._log.plain
            and Position(1, segment, len(payloads)) <= position
        ]


def entry_at(at: Position, payload: bytes, version: int) -> Entry:
    return Entry(at.epoch, at.segment, at.offset, payload, version, f"CommitLog-7-{at.segment}.log")
