"""Delta debugging: fewer statements that still fail (Zeller and Hildebrandt, 2002)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

Fails = Callable[[Sequence[Sequence[str]]], Sequence[bool]]
"""Which of several programs, tried at once, fail."""


def shrink(lines: Sequence[str], fails: Fails, go_on: Callable[[], bool] = lambda: True) -> list[str]:
    """A subset of the lines, in their order, that fails; with `go_on` until the end no line of it can be left out.

    The lines themselves must fail. In each step what is left of them without each of several parts is tried, all at
    once, and the first that fails is gone on with.
    """
    kept, parts = list(lines), 2
    while len(kept) > 1 and go_on():
        chunks = _chunks(kept, parts)
        rests = [[line for chunk in (*chunks[:at], *chunks[at + 1 :]) for line in chunk] for at in range(len(chunks))]
        smaller = next((rest for rest, bad in zip(rests, fails(rests), strict=True) if bad), None)
        if smaller is not None:
            parts, kept = max(parts - 1, 2), smaller
        elif parts >= len(kept):
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def _chunks(lines: list[str], parts: int) -> list[list[str]]:
    bounds = [len(lines) * at // parts for at in range(parts + 1)]
    return [lines[a:b] for a, b in pairwise(bounds) if a < b]
