"""Segments as spans of ids, and the sums and differences of spans."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]
"""Segment ids from the first to the last, both included."""


def spans(ids: Iterable[int]) -> tuple[Span, ...]:
    """Ids as spans of consecutive ones."""
    found: list[Span] = []
    for id in sorted(set(ids)):
        if found and id == found[-1][1] + 1:
            found[-1] = (found[-1][0], id)
        else:
            found.append((id, id))
    return tuple(found)


def united(known: Iterable[Span], more: Iterable[Span] = ()) -> tuple[Span, ...]:
    """Spans as few as possible."""
    found: list[Span] = []
    for a, b in sorted((*known, *more)):
        if found and a <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(b, found[-1][1]))
        else:
            found.append((a, b))
    return tuple(found)


def without(span: Span, known: Iterable[Span]) -> tuple[Span, ...]:
    """What of a span stands in none of the known ones."""
    left, (at, last) = list[Span](), span
    for a, b in united(known):
        if b < at or a > last:
            continue
        if a > at:
            left.append((at, a - 1))
        at = b + 1
    return (*left, (at, last)) if at <= last else tuple(left)


def ids_of(known: Iterable[Span]) -> frozenset[int]:
    """Every id of spans that were made of ids."""
    return frozenset(id for a, b in known for id in range(a, b + 1))
