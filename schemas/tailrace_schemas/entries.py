"""Stream ids, and the entries of a generation: one value each to look at, columns of numbers and bytes to keep."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final, Self, overload

from tailrace_schemas.errors import CorruptError
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

STREAM_ID_BYTES: Final = 16
VERSION: Final = 1

_RANDOM_BITS: Final = 38
_INDEX_BITS: Final = 22
_TEXT: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{32})")
# Each last byte of a stream id to its version.
_VERSIONS: Final = bytes(n & 15 for n in range(256))


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


class Entries(Sequence[Entry]):
    """The entries of a generation, ascending by the end of their range: a sequence of Entry, kept as columns.

    An Entry is made when it is looked at: as objects a ring of 1,000 nodes would take a gigabyte. The columns, which
    nobody changes, are `range_ends` (signed 64 bits) and `ignore_msb` (a byte), one element per entry. `firsts`
    (unsigned 32 bits) has the index of each entry's first stream, and last the number of streams. `ids` has 16 bytes
    for each stream, the entries in turn, each in shard order.

    Made of columns, `counts` being streams per entry. Raises CorruptError when there is no entry, one has no stream,
    the ends do not ascend strictly, or a column holds what cannot be.
    """

    __slots__ = ("firsts", "ids", "ignore_msb", "range_ends")

    def __init__(self, range_ends: array[int], counts: Iterable[int], ignore_msb: bytes, ids: bytes) -> None:
        self.range_ends: Final = range_ends
        self.firsts: Final = array("I", accumulate(counts, initial=0))
        self.ignore_msb: Final = ignore_msb
        self.ids: Final = ids
        self._check()

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """The columns of these entries; themselves if they are columns already. Raises CorruptError."""
        if isinstance(entries, cls):
            return entries
        listed = tuple(entries)
        return cls(
            array("q", (entry.token_range_end for entry in listed)),
            (len(entry.streams) for entry in listed),
            bytes(entry.sharding_ignore_msb for entry in listed),
            b"".join(stream.value for entry in listed for stream in entry.streams),
        )

    @property
    def stream_count(self) -> int:
        """How many streams all entries have together."""
        return self.firsts[-1]

    def index_of(self, token: int) -> int:
        """Which entry a token belongs to: the first whose range ends at it or after it, else entry 0."""
        index = bisect_left(self.range_ends, token)
        return index if index < len(self.range_ends) else 0

    def stream_of(self, token: int) -> StreamId:
        """The stream of a token: by entry, then by shard, modulo the entry's own number of streams."""
        index = self.index_of(token)
        first = self.firsts[index]
        return self._id(first + shard(self.firsts[index + 1] - first, self.ignore_msb[index], token))

    def streams(self) -> Iterator[StreamId]:
        """Every stream, the entries in turn."""
        return map(self._id, range(self.stream_count))

    def _id(self, index: int) -> StreamId:
        return StreamId(self.ids[STREAM_ID_BYTES * index : STREAM_ID_BYTES * (index + 1)])

    def _entry(self, index: int) -> Entry:
        streams = tuple(map(self._id, range(self.firsts[index], self.firsts[index + 1])))
        return Entry(self.range_ends[index], streams, self.ignore_msb[index])

    def _check(self) -> None:
        ends, firsts = self.range_ends, self.firsts
        if not len(ends) == len(firsts) - 1 == len(self.ignore_msb) or firsts[-1] * STREAM_ID_BYTES != len(self.ids):
            raise CorruptError("the columns of a generation's entries differ in length")
        if not ends:
            raise CorruptError("a generation has no entries")
        for previous, end in pairwise(ends):
            if previous >= end:
                raise CorruptError(f"entries are not sorted: range end {end} stands after {previous}")
        for index, (first, last) in enumerate(pairwise(firsts)):
            if first == last:
                raise CorruptError(f"the entry that ends at token {ends[index]} has no streams")
        if max(self.ignore_msb) > 63:
            raise CorruptError(f"ignore_msb {max(self.ignore_msb)} is not between 0 and 63")
        versions = self.ids[STREAM_ID_BYTES - 1 :: STREAM_ID_BYTES].translate(_VERSIONS)
        if versions.count(VERSION) != len(versions):
            self._id(next(stream_index for stream_index, version in enumerate(versions) if version != VERSION))

    def __len__(self) -> int:
        return len(self.range_ends)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        indices = range(len(self))[index]  # counts from the end, and refuses what is outside
        return self._entry(indices) if isinstance(indices, int) else tuple(map(self._entry, indices))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Entries):
            return NotImplemented
        return (self.range_ends, self.firsts, self.ignore_msb, self.ids) == (
            other.range_ends,
            other.firsts,
            other.ignore_msb,
            other.ids,
        )

    def __hash__(self) -> int:
        return hash((self.ids, self.ignore_msb))

    def __repr__(self) -> str:
        return f"<{len(self)} entries, {self.stream_count} streams>"


def shard(n: int, ignore_msb: int, token: int) -> int:
    """Which of n shards a token belongs to, its `ignore_msb` highest bits left out; 0 to n - 1."""
    return ((token + (1 << 63) << ignore_msb & (1 << 64) - 1) * n) >> 64
