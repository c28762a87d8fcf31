"""Token ranges as small buckets, and digests of the rows in each: equal where both sides have the same rows. No I/O."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tailrace_spark.snapshot.ranges import TokenRange

Digest = tuple[int, int]
"""How many rows, and the sum of their digests modulo 2^128: the rows' order does not matter."""
NO_ROWS: Final[Digest] = (0, 0)
_MODULUS: Final = 1 << 128


@dataclass(frozen=True, slots=True)
class Buckets:
    """Ranges that are compared as one each, in the order of their tokens; they do not overlap."""

    ranges: tuple[TokenRange, ...]
    _ends: tuple[int, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", tuple([token_range.end for token_range in self.ranges]))

    def of(self, token: int) -> int | None:
        """The number of a token's bucket; None where it is in none."""
        index = bisect_left(self._ends, token)
        return index if index < len(self.ranges) and self.ranges[index].start < token else None


def buckets_of(ranges: Iterable[TokenRange], splits: int) -> Buckets:
    """Each range cut into so many buckets, as far as it has tokens for them."""
    cut: list[TokenRange] = []
    for token_range in sorted(ranges, key=lambda item: item.start):
        count = min(splits, token_range.width)
        bounds = [token_range.start + token_range.width * index // count for index in range(count + 1)]
        cut += [TokenRange(start, end) for start, end in pairwise(bounds)]
    return Buckets(tuple(cut))


def with_rows(digest: Digest, count: int, total: int) -> Digest:
    """A digest with so many rows more, whose own digests have this sum."""
    return digest[0] + count, (digest[1] + total) % _MODULUS


def joined(buckets: Buckets, numbers: Sequence[int]) -> list[TokenRange]:
    """The ranges of some buckets; neighbours are one range."""
    ranges: list[TokenRange] = []
    for index in sorted(numbers):
        bucket = buckets.ranges[index]
        if ranges and ranges[-1].end == bucket.start:
            ranges[-1] = TokenRange(ranges[-1].start, bucket.end)
        else:
            ranges.append(bucket)
    return ranges
