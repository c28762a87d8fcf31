"""Stream ids for whole columns: tokens and write times in, ids, generations and marks out, by numpy alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.streams import STREAM_ID_BYTES, Generation, Mark

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]

MARKS: Final = (None, Mark.BEFORE_FIRST, Mark.AHEAD)
"""The marks that the numbers in AssignmentColumns.marks stand for."""

_STREAM: Final = np.dtype((np.void, STREAM_ID_BYTES))
_BEFORE_FIRST: Final = MARKS.index(Mark.BEFORE_FIRST)
_AHEAD: Final = MARKS.index(Mark.AHEAD)
_HALF: Final = np.uint64(32)
_LOW: Final = np.uint64(2**32 - 1)
_SIGN: Final = np.uint64(1 << 63)
_LAST: Final = np.uint64(2**64 - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentColumns:
    """One row per change: `streams` as 16 bytes each, `generations` in milliseconds, `marks` as indexes into MARKS."""

    streams: npt.NDArray[np.void]
    generations: Int64s
    marks: npt.NDArray[np.uint8]

    def stream_column(self) -> pa.Array:
        """The stream ids as Arrow binary. Of fixed-size binary Spark has no notion."""
        offsets = np.arange(0, STREAM_ID_BYTES * (len(self.streams) + 1), STREAM_ID_BYTES, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(self.streams))]
        return pa.Array.from_buffers(pa.binary(), len(self.streams), buffers)


@dataclass(frozen=True, slots=True, eq=False)
class RangeEnds:
    """The ends of a generation's ranges, and where in them to begin to look for a token.

    Tokens are hashes, so the ring is cut into equal shares, two to four times as many as it has ends. `begins` has for
    each share the first entry whose range ends in it or after it. That entry, or the next, is nearly always the
    token's. Elsewhere a binary search finds it, which takes ten times as long in a large ring. `ends` are unsigned,
    from the minimum token on, and one more that no token exceeds.
    """

    ends: UInt64s
    begins: npt.NDArray[np.int32]
    shift: np.uint64

    @classmethod
    def of(cls, range_ends: Int64s) -> Self:
        """From the ends of all ranges, ascending."""
        ends = np.append(range_ends.view(np.uint64) ^ _SIGN, _LAST)
        bits = max(len(range_ends) - 1, 1).bit_length() + 1
        shift = np.uint64(64 - bits)
        shares = np.arange(1 << bits, dtype=np.uint64) << shift
        return cls(ends, np.searchsorted(ends[:-1], shares).astype(np.int32), shift)

    def entries(self, tokens: UInt64s) -> npt.NDArray[np.intp]:
        """The entry of each token (unsigned likewise): the first that ends at it or after it, else 0."""
        entries = self.begins[(tokens >> self.shift).view(np.int64)].astype(np.intp)
        past_end = self.ends[entries] < tokens
        entries += past_end
        moved = np.flatnonzero(past_end)
        further = moved[self.ends[entries[moved]] < tokens[moved]]
        entries[further] = np.searchsorted(self.ends, tokens[further])
        entries[entries == len(self.ends) - 1] = 0
        return entries


@dataclass(frozen=True, slots=True, eq=False)
class GenerationColumns:
    """One generation as columns, one element per entry; `first` is the entry's first place in `streams`.

    `uniform` has streams per entry and ignore_msb where they are the same in all entries, as they are in ours.
    """

    range_ends: RangeEnds
    first: Int64s
    counts: UInt64s
    ignore_msb: UInt64s
    streams: npt.NDArray[np.void]
    uniform: tuple[int, int] | None

    @classmethod
    def of(cls, generation: Generation) -> Self:
        """The columns of a generation."""
        entries = generation.entries
        firsts = np.frombuffer(entries.firsts, dtype=np.uint32)
        counts, ignore_msb = np.diff(firsts), np.frombuffer(entries.ignore_msb, dtype=np.uint8)
        alike = bool(np.all(counts == counts[0]) and np.all(ignore_msb == ignore_msb[0]))
        return cls(
            range_ends=RangeEnds.of(np.frombuffer(entries.range_ends, dtype=np.int64)),
            first=firsts[:-1].astype(np.int64),
            counts=counts.astype(np.uint64),
            ignore_msb=ignore_msb.astype(np.uint64),
            streams=np.frombuffer(entries.ids, dtype=_STREAM),
            uniform=(int(counts[0]), int(ignore_msb[0])) if alike else None,
        )

    def look_up(self, tokens: Int64s) -> npt.NDArray[np.void]:
        """The stream of each token, as tailrace_schemas.streams.stream_for."""
        words = unsigned(tokens)
        entry = self.range_ends.entries(words)
        if self.uniform is None:
            return self.streams.take(self.first[entry] + share(self.counts[entry], self.ignore_msb[entry], words))
        count, ignore_msb = self.uniform
        if count > 1:
            entry *= count
            entry += share(np.uint64(count), np.uint64(ignore_msb), words)
        return self.streams.take(entry)


@dataclass(frozen=True, slots=True, eq=False)
class StreamTable:
    """The generations that changes are assigned to, ascending by timestamp (milliseconds).

    `known_until` (milliseconds) is how far ahead they are all known, None where that is settled; see
    tailrace_schemas.streams.operating. A value that can be pickled: the driver makes it, executors use it.
    """

    timestamps: Int64s
    generations: tuple[GenerationColumns, ...]
    known_until: int | None = None

    @classmethod
    def of(cls, generations: Iterable[Generation], known_until: int | None = None) -> Self:
        """From at least one, ascending; each takes about 60 bytes per vnode, 16 per stream. Raises ValueError."""
        timestamps, columns = [], []
        for generation in generations:
            timestamps.append(generation.timestamp)
            columns.append(GenerationColumns.of(generation))
        if not columns or any(earlier >= later for earlier, later in pairwise(timestamps)):
            raise ValueError(f"at least one generation, ascending by timestamp, not {timestamps}")
        return cls(np.array(timestamps, dtype=np.int64), tuple(columns), known_until)

    @classmethod
    def of_published(cls, published: Iterable[PublishedGeneration], known_until: int | None) -> Self:
        """From what GenerationReader.refresh gave, and its `known_until`; unpacked one at a time."""
        return cls.of((generation.unpack().generation for generation in published), known_until)

    def assign(self, tokens: Int64s, written: Int64s) -> AssignmentColumns:
        """Stream, generation and mark of changes with these tokens and write times (microseconds), row by row.

        Equal to `operating` and `stream_for` of tailrace_schemas.streams for each row; memory is a few times the
        input's.
        """
        milliseconds = written // 1000
        operating = np.searchsorted(self.timestamps, milliseconds, side="right") - 1
        marks = np.where(operating < 0, np.uint8(_BEFORE_FIRST), np.uint8(0))
        if self.known_until is not None:
            marks[(operating >= 0) & (milliseconds > self.known_until)] = _AHEAD
        np.maximum(operating, 0, out=operating)
        return AssignmentColumns(
            streams=self._look_up(operating, tokens), generations=self.timestamps[operating], marks=marks
        )

    def _look_up(self, operating: npt.NDArray[np.intp], tokens: Int64s) -> npt.NDArray[np.void]:
        """By generation: a batch nearly always has one, at a change of topology two."""
        if len(operating) and np.all(operating == operating[0]):
            return self.generations[int(operating[0])].look_up(tokens)
        streams = np.empty(len(tokens), dtype=_STREAM)
        for index in np.flatnonzero(np.bincount(operating)):
            rows = np.flatnonzero(operating == index)
            streams[rows] = self.generations[int(index)].look_up(tokens[rows])
        return streams


class UnpackedGenerations:
    """The table of published generations, which are unpacked where they have changed: a large ring takes seconds."""

    def __init__(self) -> None:
        self._table: tuple[tuple[UUID, ...], StreamTable] | None = None

    def table(self, published: Sequence[PublishedGeneration], known_until: int | None) -> StreamTable:
        """Of what GenerationReader.refresh gave, with its `known_until` of now."""
        uuids = tuple([generation.uuid for generation in published])
        if self._table is None or self._table[0] != uuids:
            self._table = uuids, StreamTable.of_published(published, known_until)
        return replace(self._table[1], known_until=known_until)


def unsigned(tokens: Int64s) -> UInt64s:
    """Tokens counted from the minimum token on."""
    words: UInt64s = tokens.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN
    return words


def share(counts: UInt64s | np.uint64, ignore_msb: UInt64s | np.uint64, tokens: UInt64s) -> Int64s:
    """((token << ignore_msb) mod 2^64 * count) >> 64, the product in two halves: it has up to 96 bits.

    `tokens` are `unsigned`. numpy's unsigned words wrap as the formula wants; counts are
    below 2^32, so neither half overflows.
    """
    shifted = tokens << ignore_msb
    high, low = shifted >> _HALF, shifted & _LOW
    product: UInt64s = (high * counts + (low * counts >> _HALF)) >> _HALF
    return product.view(np.int64)
