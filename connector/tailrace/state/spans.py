"""Segments as spans of ids, and the sums and differences of spans."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""Segment ids from the first to the last, both included."""


def spans(ids: Iterable[int]) -> tuple[Span, ...]:
    """Ids as spans of consecutive ones."""
    runs: list[Span] = []
    for id in sorted(set(ids)):
        if runs and id == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], id)
        else:
            runs.append((id, id))
    return tuple(runs)


def united(spans: Iterable[Span], added: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Spans as few as possible."""
    merged: list[Span] = []
    for a, b in sorted((*spans, *added)):
        if merged and a <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(b, merged[-1][1]))
        else:
            merged.append((a, b))
    return tuple(merged)


def without(span: Span, excluded: Iterable[Span]) -> tuple[Span, ...]:
    """What of a span stands in none of the known ones."""
    pieces, (first, last) = list[Span](), span
    for a, b in united(excluded):
        if b < first or a > last:
            continue
        if a > first:
            pieces.append((first, a - 1))
        first = b + 1
    return (*pieces, (first, last)) if first <= last else tuple(pieces)


def ids_of(spans: Iterable[Span]) -> frozenset[int]:
    """Every id of spans that were made of ids."""
    return frozenset(id for a, b in spans for id in range(a, b + 1))
