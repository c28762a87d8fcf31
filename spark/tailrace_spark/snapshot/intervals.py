"""Sets of tokens as ranges in their order, which neither overlap nor touch: what of a table is read, and what is left.

A ring that is cut otherwise later, as nodes join or leave, changes nothing in them. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace_spark.snapshot.ranges import TokenRange

Intervals = tuple[TokenRange, ...]
WHOLE: Intervals = (TokenRange(),)
"""The whole ring."""


def union(*sets: Iterable[TokenRange]) -> Intervals:
    """All tokens of these ranges, which may overlap and come in any order."""
    joined: list[TokenRange] = []
    for token_range in sorted((token_range for ranges in sets for token_range in ranges), key=_start):
        if joined and token_range.start <= joined[-1].end:
            joined[-1] = TokenRange(joined[-1].start, max(joined[-1].end, token_range.end))
        else:
            joined.append(token_range)
    return tuple(joined)


def without(ranges: Intervals, removed: Intervals) -> Intervals:
    """The tokens of `ranges` that are not in `removed`."""
    remaining: list[TokenRange] = []
    index = 0
    for token_range in ranges:
        start = token_range.start
        while index and removed[index - 1].end > start:
            index -= 1
        while index < len(removed) and removed[index].end <= start:
            index += 1
        while index < len(removed) and removed[index].start < token_range.end:
            if removed[index].start > start:
                remaining.append(TokenRange(start, removed[index].start))
            start = max(start, removed[index].end)
            index += 1
        if start < token_range.end:
            remaining.append(TokenRange(start, token_range.end))
    return tuple(remaining)


def width(ranges: Iterable[TokenRange]) -> int:
    """How many tokens they have."""
    return sum(token_range.width for token_range in ranges)


def _start(token_range: TokenRange) -> int:
    return token_range.start
