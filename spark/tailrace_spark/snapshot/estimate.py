"""How much a read is, before it begins: rows by samples of the ring, bytes by what the nodes estimate. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from tailrace_spark.snapshot.ranges import Piece, TokenRange

Item = TypeVar("Item")
SAMPLE_ROWS: Final = 200
"""Rows of a sample, at most."""
_SAMPLES: Final = 16


@dataclass(frozen=True, slots=True)
class Sample:
    """So many rows were found in so many tokens of the ring."""

    rows: int
    width: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a read would be. `rows` is None where nothing tells, `octets` are those of flushed data on disk.

    `seconds` is how long it takes at the rows a second that were asked for; None: no limit, or no rows are known.
    """

    ranges: int
    tasks: int
    rows: int | None
    octets: int
    seconds: int | None


def sampled(pieces: Sequence[Item]) -> Sequence[Item]:
    """Some of the pieces, evenly spread."""
    step = max(1, len(pieces) // _SAMPLES)
    return pieces[step // 2 :: step][:_SAMPLES]


def sample_of(token_range: TokenRange, tokens: Sequence[int], *, is_whole: bool) -> Sample:
    """A sample of a range's first rows, by their tokens; `is_whole`: there are no others in the range."""
    if is_whole or not tokens:
        return Sample(len(tokens), token_range.width)
    return Sample(len(tokens), max(1, tokens[-1] - token_range.start))


def estimate(pieces: Sequence[Piece], tasks: int, samples: Iterable[Sample], rows_per_second: float | None) -> Estimate:
    """What reading the pieces would be, by so many tasks."""
    rows_sampled = width_sampled = 0
    for sample in samples:
        rows_sampled, width_sampled = rows_sampled + sample.rows, width_sampled + sample.width
    rows: int | None = None
    if width_sampled:
        rows = round(rows_sampled * sum([piece.range.width for piece in pieces]) / width_sampled)
    octets = round(sum([piece.octets for piece in pieces]))
    seconds = None if rows is None or rows_per_second is None else round(rows / rows_per_second)
    return Estimate(len(pieces), tasks, rows, octets, seconds)
