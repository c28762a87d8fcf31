"""Generations of streams, as ScyllaDB's change data capture has them: what they are, and which stream a change has."""

from __future__ import annotations

import hashlib
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from tailrace_schemas.entries import STREAM_ID_BYTES, VERSION, Entries, Entry, StreamId, shard
from tailrace_schemas.ring import Ring
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

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
_DRAWN_BYTES: Final = 5
_INDEX_LOW: Final = 20
_UPPER_SIX: Final = bytes(n & 0xFC for n in range(256))
_RANDOM_BITS: Final = 38


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

    Deterministic, as tailrace_schemas.streams says. Raises ValueError when a setting is out of range.
    """
    if streams_per_entry < 1:
        raise ValueError(f"streams_per_entry must be at least 1, not {streams_per_entry}")
    if not 0 <= ignore_msb < 64:
        raise ValueError(f"ignore_msb must be between 0 and 63, not {ignore_msb}")
    return Generation(timestamp, draw_entries(ring.tokens, streams_per_entry, ignore_msb, seed))


def keep_from(timestamps: Sequence[int], now_ms: int, retentions_ms: Iterable[int | None]) -> int | None:
    """The timestamp of the oldest generation to keep; None where all are kept.

    `timestamps` (milliseconds) ascend. A generation may go when its successor operates, and every change of its time is
    older than every table's retention (stream-ids.md 3: finished). Of `retentions_ms`, None is for a table that keeps
    its changes for ever. So the one that operated at now - the longest retention stays, with all later ones. Where
    nothing is known of any table, none goes.
    """
    longest = 0
    any_known = False
    for retention in retentions_ms:
        if retention is None:
            return None
        longest, any_known = max(longest, retention), True
    if not any_known:
        return None
    finished = [timestamp for timestamp in timestamps[1:] if timestamp <= now_ms - longest]
    return finished[-1] if finished else None


def draw_entries(range_ends: Sequence[int], per_entry: int, ignore_msb: int, seed: int) -> Entries:
    """One entry for each end, which ascend; each with `per_entry` streams whose tokens lie in its own range.

    A stream's token is the first of the range that its shard owns, or, when it owns none there, the range's end. Its
    random bits are the upper 38 of every 40 of SHAKE-256 over "tailrace streams <seed>", in the order of entries, then
    shards. Of two equal ids the later one takes the next free number. Per entry it costs a microsecond, and per stream
    half of one; memory is three times that of the result, at most.
    """
    ends = array("q", range_ends)
    ids = bytearray(STREAM_ID_BYTES * len(ends) * per_entry)
    _write_words(ids, 0, _Sharding(per_entry, ignore_msb).tokens(ends))
    _write_random(ids, seed)
    _write_indices(ids, len(ends), per_entry)
    if per_entry > 1:
        _make_distinct(ids, STREAM_ID_BYTES * per_entry)
    return Entries(ends, (per_entry for _ in ends), bytes([ignore_msb]) * len(ends), bytes(ids))


class _Sharding:
    """Where the shards' tokens begin.

    Without its highest bits the ring is 2^ignore_msb equal blocks. In each of them a shard owns one run of tokens, or
    none where there are more shards than tokens.
    """

    def __init__(self, n: int, ignore_msb: int) -> None:
        self.n = n
        self.bits = 64 - ignore_msb
        block = 1 << self.bits
        runs = [(-(-s * block // n), -(-(s + 1) * block // n) - 1) for s in range(n)]
        self.runs = [run if run[0] <= run[1] else None for run in runs]

    def tokens(self, ends: array[int]) -> array[int]:
        """The token of every stream: the entries in turn, each in shard order."""
        n, bits, runs = self.n, self.bits, self.runs
        tokens = array("q", bytes(8 * len(ends) * n))
        for of_shard in range(n):
            tokens[of_shard::n] = ends
        index, start, mask = 0, ends[-1], (1 << bits) - 1
        for end in ends:
            first, last = start + 1 - MIN_TOKEN, end - MIN_TOKEN
            if start < end and first >> bits == last >> bits:
                # The usual range, within a block: the shards between those of its first and its last token begin in it.
                begin = (first & mask) * n >> bits
                tokens[index + begin] = start + 1
                for of_shard in range(begin + 1, ((last & mask) * n >> bits) + 1):
                    run = runs[of_shard]
                    if run is not None:
                        tokens[index + of_shard] = first - (first & mask) + run[0] + MIN_TOKEN
            else:
                for of_shard in range(n):
                    tokens[index + of_shard] = self._token(start, end, of_shard)
            index, start = index + n, end
        return tokens

    def _token(self, start: int, end: int, of_shard: int) -> int:
        """The first token of (start, end] that a shard owns, or, when it owns none there, the end of the range.

        A range that wraps (start >= end) is searched up to the maximum token, then from the minimum. That one is no
        key's token and is left out, as ScyllaDB does (dht::find_first_token_for_shard).
        """
        if start >= end:
            first = self._first_token(start + 1, of_shard)
            if first is not None:
                return first
            start = MIN_TOKEN
        first = self._first_token(start + 1, of_shard)
        return end if first is None else min(first, end)

    def _first_token(self, at_least: int, of_shard: int) -> int | None:
        """The smallest token from `at_least` on that a shard owns; None when the ring ends before."""
        run = self.runs[of_shard]
        if run is None:
            return None
        unsigned = at_least - MIN_TOKEN
        offset = unsigned & (1 << self.bits) - 1
        if offset < run[0]:
            unsigned += run[0] - offset
        elif offset > run[1]:
            unsigned += (1 << self.bits) - offset + run[0]
        token = unsigned + MIN_TOKEN
        return token if token <= MAX_TOKEN else None


# A column of words is written byte by byte, each byte of all words at once: at C's speed, without numpy.


def _write_words(ids: bytearray, start: int, words: array[int]) -> None:
    if sys.byteorder == "little":
        words.byteswap()
    width, column = words.itemsize, words.tobytes()
    for n in range(width):
        ids[start + n :: STREAM_ID_BYTES] = column[n::width]


def _write_random(ids: bytearray, seed: int) -> None:
    count = len(ids) // STREAM_ID_BYTES
    drawn = hashlib.shake_256(f"tailrace streams {seed}".encode()).digest(_DRAWN_BYTES * count)
    for n in range(_DRAWN_BYTES - 1):
        ids[8 + n :: STREAM_ID_BYTES] = drawn[n::_DRAWN_BYTES]
    ids[12::STREAM_ID_BYTES] = drawn[4::_DRAWN_BYTES].translate(_UPPER_SIX)


def _write_indices(ids: bytearray, entries: int, per_entry: int) -> None:
    """The last 26 bits of each id: the place of its entry, and the version."""
    words = array("I", range(VERSION, VERSION + (entries << 4), 16))
    if sys.byteorder == "little":
        words.byteswap()
    column = words.tobytes()
    for of_shard in range(per_entry):
        offset, step = STREAM_ID_BYTES * of_shard, STREAM_ID_BYTES * per_entry
        for n in (1, 2, 3):
            ids[offset + 12 + n :: step] = column[n::4]
        if entries >> _INDEX_LOW:  # else its two highest bits, which share a byte with random ones, are 0
            above = int.from_bytes(ids[offset + 12 :: step]) | int.from_bytes(column[::4])
            ids[offset + 12 :: step] = above.to_bytes(entries)


def _make_distinct(ids: bytearray, size: int) -> None:
    """Give ids that stand twice in one entry other random bits; in two entries none can, as their indices differ."""
    for offset in range(0, len(ids), size):
        entry = bytes(ids[offset : offset + size])
        streams = [entry[n : n + STREAM_ID_BYTES] for n in range(0, size, STREAM_ID_BYTES)]
        if len(set(streams)) < len(streams):
            distinct: dict[bytes, None] = {}
            for stream in streams:
                candidate = stream
                while candidate in distinct:
                    candidate = _next(candidate)
                distinct[candidate] = None
            ids[offset : offset + size] = b"".join(distinct)


def _next(stream_id: bytes) -> bytes:
    low = int.from_bytes(stream_id[8:]) + (1 << 64 - _RANDOM_BITS) & (1 << 64) - 1
    return stream_id[:8] + low.to_bytes(8)
