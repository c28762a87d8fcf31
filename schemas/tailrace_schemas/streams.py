"""Stream ids and generations, as ScyllaDB's change data capture has them: what they are, and which one a change has."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.ring import Ring
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

STREAM_ID_BYTES: Final = 16
VERSION: Final = 1
LEEWAY_MS: Final = 5_000
"""How long before its timestamp a generation must be in the topic; the same for every reader (contracts.md 5)."""

_RANDOM_BITS: Final = 38
_INDEX_BITS: Final = 22
_TEXT: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{32})")


@dataclass(frozen=True, slots=True, order=True)
class StreamId:
    """Sixteen bytes, ordered unsigned: the token, then 38 random bits, 22 bits of vnode index, 4 bits of version.

    Raises CorruptError for another length or version.
    """

    value: bytes

    def __post_init__(self) -> None:
        if len(self.value) != STREAM_ID_BYTES:
            raise CorruptError(f"a stream id has {STREAM_ID_BYTES} bytes, not {len(self.value)}")
        if self.value[15] & 15 != VERSION:
            raise CorruptError(f"stream id {self} has version {self.value[15] & 15}; only {VERSION} is known")

    @classmethod
    def of(cls, token: int, random: int, index: int) -> StreamId:
        """From its parts; ValueError when one does not fit its bits."""
        if not (MIN_TOKEN <= token <= MAX_TOKEN and 0 <= random < 1 << _RANDOM_BITS and 0 <= index < 1 << _INDEX_BITS):
            raise ValueError(f"no stream id can hold token {token}, random {random}, index {index}")
        low = random << 26 | index << 4 | VERSION
        return cls(token.to_bytes(8, "big", signed=True) + low.to_bytes(8, "big"))

    @classmethod
    def parse(cls, text: str) -> StreamId:
        """From 32 hexadecimal digits, `0x` in front or not; CorruptError for anything else."""
        matched = _TEXT.fullmatch(text)
        if matched is None:
            raise CorruptError(f"a stream id is 32 hexadecimal digits, not {text!r}")
        return cls(bytes.fromhex(matched[1]))

    @property
    def token(self) -> int:
        """A token of the vnode's range, so that a change and its stream have the same replicas."""
        return int.from_bytes(self.value[:8], "big", signed=True)

    @property
    def random(self) -> int:
        """The 38 bits that keep the streams of two generations apart."""
        return int.from_bytes(self.value[8:], "big") >> 26

    @property
    def index(self) -> int:
        """The position of the stream's entry in its generation."""
        return int.from_bytes(self.value[8:], "big") >> 4 & (1 << _INDEX_BITS) - 1

    def __str__(self) -> str:
        return f"0x{self.value.hex()}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One vnode: the tokens after the previous entry's end up to `token_range_end`, and its streams in shard order.

    Raises CorruptError without a stream, or when `sharding_ignore_msb` is not 0 to 63.
    """

    token_range_end: int
    streams: tuple[StreamId, ...]
    sharding_ignore_msb: int = 0

    def __post_init__(self) -> None:
        if not self.streams:
            raise CorruptError(f"the entry that ends at token {self.token_range_end} has no streams")
        if not 0 <= self.sharding_ignore_msb < 64:
            raise CorruptError(f"ignore_msb {self.sharding_ignore_msb} is not between 0 and 63")


@dataclass(frozen=True, slots=True)
class Generation:
    """The streams that operate from `timestamp` (milliseconds) on; entries ascend by the end of their range.

    Entry i covers (end of i - 1, end of i]; entry 0 what is left: after the last end, and up to its own. Raises
    CorruptError when there is no entry, or the ends do not ascend strictly.
    """

    timestamp: int
    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        if not self.entries:
            raise CorruptError(f"generation {self.timestamp} has no entries")
        for before, after in pairwise(self.entries):
            if before.token_range_end >= after.token_range_end:
                raise CorruptError(
                    f"generation {self.timestamp} is not sorted: range end {after.token_range_end} stands"
                    f" after {before.token_range_end}"
                )

    def entry_for(self, token: int) -> Entry:
        """The first entry whose range ends at the token or after it, else entry 0."""
        at = bisect_left(self.entries, token, key=lambda entry: entry.token_range_end)
        return self.entries[at if at < len(self.entries) else 0]

    def streams(self) -> frozenset[StreamId]:
        """Every stream of the generation."""
        return frozenset(stream for entry in self.entries for stream in entry.streams)


def shard(n: int, ignore_msb: int, token: int) -> int:
    """Which of n shards a token belongs to, its `ignore_msb` highest bits left out; 0 to n - 1."""
    return ((token + (1 << 63) << ignore_msb & (1 << 64) - 1) * n) >> 64


def stream_for(generation: Generation, token: int) -> StreamId:
    """The stream of a token in a generation: by vnode, then by shard, modulo the entry's own number of streams."""
    entry = generation.entry_for(token)
    return entry.streams[shard(len(entry.streams), entry.sharding_ignore_msb, token)]


class Mark(StrEnum):
    """What a reader should know about an assignment; never a reason to refuse it."""

    BEFORE_FIRST = "before_first"
    """Written before the first generation: the first one is used."""
    AHEAD = "ahead"
    """Written later than what the reader can know for certain: a generation may still be announced for it."""


class Operating(NamedTuple):
    """Which generation operated at a write time: its place among the timestamps given, and a mark, if any."""

    place: int
    mark: Mark | None


def operating(timestamps: Sequence[int], written: int, known_until: int | None = None) -> Operating:
    """The generation that operated at a write time (microseconds): the last whose timestamp is at or before it.

    `timestamps` are milliseconds, ascending, at least one; a write time belongs to the millisecond floor(w / 1000).
    `known_until` (milliseconds) is how far the reader knows all generations: the time of reading + LEEWAY_MS, since
    later ones are valid only when announced that long ahead (contracts.md 5); None for readers to whom it is settled.
    """
    at = written // 1000
    place = bisect_right(timestamps, at) - 1
    if place < 0:
        return Operating(0, Mark.BEFORE_FIRST)
    return Operating(place, Mark.AHEAD if known_until is not None and at > known_until else None)


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
    before, after = old.streams(), new.streams()
    return Differences(before - after, after - before)


def build_generation(
    ring: Ring, streams_per_entry: int = 1, ignore_msb: int = 0, *, timestamp: int, seed: int
) -> Generation:
    """The generation of a ring: one entry per vnode, each with `streams_per_entry` streams in its own token range.

    Deterministic: the random bits are 38 of every 40 bits of SHAKE-256 over "tailrace streams <seed>", in the order
    of entries, then shards. Raises ValueError when a setting is out of range.
    """
    if streams_per_entry < 1:
        raise ValueError(f"streams_per_entry must be at least 1, not {streams_per_entry}")
    if not 0 <= ignore_msb < 64:
        raise ValueError(f"ignore_msb must be between 0 and 63, not {ignore_msb}")
    ends = ring.tokens
    random = _random_bits(seed, len(ends) * streams_per_entry)
    return Generation(
        timestamp,
        tuple(
            Entry(
                end,
                tuple(
                    StreamId.of(_token_in_range(ends[index - 1], end, streams_per_entry, ignore_msb, n), bits, index)
                    for n, bits in zip(range(streams_per_entry), random, strict=False)
                ),
                ignore_msb,
            )
            for index, end in enumerate(ends)
        ),
    )


def _random_bits(seed: int, count: int) -> Iterator[int]:
    drawn = hashlib.shake_256(f"tailrace streams {seed}".encode()).digest(5 * count)
    return (int.from_bytes(drawn[at : at + 5], "big") >> 2 for at in range(0, len(drawn), 5))


def _token_in_range(start: int, end: int, n: int, ignore_msb: int, of_shard: int) -> int:
    """The first token of (start, end] that a shard owns, or, when it owns none there, the end of the range.

    A range that wraps (start >= end) is searched up to the maximum token, then from the minimum. That one is no
    key's token and is left out, as ScyllaDB does (dht::find_first_token_for_shard).
    """
    if start >= end:
        found = _first_token_of_shard(start + 1, n, ignore_msb, of_shard)
        if found is not None:
            return found
        start = MIN_TOKEN
    found = _first_token_of_shard(start + 1, n, ignore_msb, of_shard)
    return end if found is None else min(found, end)


def _first_token_of_shard(at_least: int, n: int, ignore_msb: int, of_shard: int) -> int | None:
    """The smallest token from `at_least` on that a shard owns; None when the ring ends before.

    Without its highest bits the ring is 2^ignore_msb equal blocks, in each of which a shard owns one run of tokens.
    """
    block = 1 << (64 - ignore_msb)
    first = -(-of_shard * block // n)
    last = -(-(of_shard + 1) * block // n) - 1
    if first > last:
        return None
    unsigned = at_least - MIN_TOKEN
    offset = unsigned % block
    if offset < first:
        unsigned += first - offset
    elif offset > last:
        unsigned += block - offset + first
    return None if unsigned >> 64 else unsigned + MIN_TOKEN
