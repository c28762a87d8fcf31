"""Generations of streams, as ScyllaDB's change data capture has them: what they are, and which stream a change has."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tailrace_schemas.drawing import draw_entries
from tailrace_schemas.entries import STREAM_ID_BYTES, Entries, Entry, StreamId, shard
from tailrace_schemas.ring import Ring

__all__ = [
    "LEEWAY_MS",
    "STREAM_ID_BYTES",
    "Assignment",
    "Differences",
    "Entries",
    "Entry",
    "Generation",
    "Mark",
    "Operating",
    "StreamId",
    "build_generation",
    "differences",
    "operating",
    "shard",
    "stream_for",
]

LEEWAY_MS: Final = 5_000
"""How long before its timestamp a generation must be in the topic; the same for every reader (contracts.md 5)."""


@dataclass(frozen=True, slots=True, init=False)
class Generation:
    """The streams that operate from `timestamp` (milliseconds) on; entries ascend by the end of their range.

    Entry i covers (end of i - 1, end of i]; entry 0 what is left: after the last end, and up to its own. Made of any
    entries. Raises CorruptError when there is no entry, or the ends do not ascend strictly.
    """

    timestamp: int
    entries: Entries

    def __init__(self, timestamp: int, entries: Iterable[Entry]) -> None:
        object.__setattr__(self, "timestamp", timestamp)
        object.__setattr__(self, "entries", Entries.of(entries))

    def entry_for(self, token: int) -> Entry:
        """The first entry whose range ends at the token or after it, else entry 0."""
        return self.entries[self.entries.index_of(token)]

    def streams(self) -> frozenset[StreamId]:
        """Every stream of the generation."""
        return frozenset(self.entries.streams())


def stream_for(generation: Generation, token: int) -> StreamId:
    """The stream of a token in a generation: by vnode, then by shard, modulo the entry's own number of streams."""
    return generation.entries.stream_of(token)


class Mark(StrEnum):
    """What a reader should know about an assignment; never a reason to refuse it."""

    BEFORE_FIRST = "before_first"
    """Written before the first generation: the first one is used."""
    AHEAD = "ahead"
    """Written later than what the reader can know for certain: a generation may still be announced for it."""


class Operating(NamedTuple):
    """Which generation operated at a write time: its index among the timestamps given, and a mark, if any."""

    generation: int
    mark: Mark | None


def operating(timestamps: Sequence[int], written: int, known_until: int | None = None) -> Operating:
    """The generation that operated at a write time (microseconds): the last whose timestamp is at or before it.

    `timestamps` are milliseconds, ascending, at least one; a write time belongs to the millisecond floor(w / 1000).
    `known_until` (milliseconds) is how far the reader knows all generations: the time of reading + LEEWAY_MS. Later
    ones are valid only when announced that long ahead (contracts.md 5). None is for readers to whom it is settled.
    """
    millisecond = written // 1000
    index = bisect_right(timestamps, millisecond) - 1
    if index < 0:
        return Operating(0, Mark.BEFORE_FIRST)
    return Operating(index, Mark.AHEAD if known_until is not None and millisecond > known_until else None)


class Assignment(NamedTuple):
    """What one change was assigned: its generation, by that one's timestamp (milliseconds), and its stream id's bytes.

    They order by generation, then by stream id.
    """

    generation: int
    stream_id: bytes


class Differences(NamedTuple):
    """What a new generation closes and opens; (old - closed) | opened is the new one's set of streams."""

    closed: frozenset[StreamId]
    opened: frozenset[StreamId]


def differences(old: Generation, new: Generation) -> Differences:
    """The streams of the old generation that the new one lacks, and the other way round."""
    old_streams, new_streams = old.streams(), new.streams()
    return Differences(old_streams - new_streams, new_streams - old_streams)


def build_generation(
    ring: Ring, streams_per_entry: int = 1, ignore_msb: int = 0, *, timestamp: int, seed: int
) -> Generation:
    """The generation of a ring: one entry per vnode, each with `streams_per_entry` streams in its own token range.

    Deterministic, as tailrace_schemas.drawing says. Raises ValueError when a setting is out of range.
    """
    if streams_per_entry < 1:
        raise ValueError(f"streams_per_entry must be at least 1, not {streams_per_entry}")
    if not 0 <= ignore_msb < 64:
        raise ValueError(f"ignore_msb must be between 0 and 63, not {ignore_msb}")
    return Generation(timestamp, draw_entries(ring.tokens, streams_per_entry, ignore_msb, seed))
