"""The token ring as a picture: what of it a snapshot has read, and what it reads at this moment. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import cos, pi, sin
from typing import Final

_CENTRE: Final = 100.0
_RADIUS: Final = 78.0
_TOKENS: Final = 1 << 64
_LEAST: Final = -(1 << 63)
_MOST_ARCS: Final = 720
"""More would be thinner than half a degree: then neighbours are drawn together."""


def arcs(ranges: Iterable[Sequence[int]]) -> str:
    """Ranges of tokens (start, end] as the `d` of an SVG path, clockwise from the smallest token at the top."""
    return "".join(_arc(begin, end) for begin, end in _degrees(ranges))


def _degrees(ranges: Iterable[Sequence[int]]) -> list[tuple[float, float]]:
    """Turns from 0 to 1, ascending, with those together that nobody would see apart."""
    drawn: list[tuple[float, float]] = []
    for start, end in sorted((start, end) for start, end in ranges):
        begin, until = (start - _LEAST) / _TOKENS, (end - _LEAST) / _TOKENS
        if drawn and begin - drawn[-1][1] < 1 / _MOST_ARCS:
            drawn[-1] = drawn[-1][0], max(until, drawn[-1][1])
        else:
            drawn.append((begin, until))
    return drawn


def _arc(begin: float, end: float) -> str:
    """SVG has no arc of a whole turn, so it is made of two halves."""
    if end - begin > 0.5:
        middle = (begin + end) / 2
        return _arc(begin, middle) + _arc(middle, end)
    (x1, y1), (x2, y2) = _point(begin), _point(end)
    return f"M{x1:.2f} {y1:.2f}A{_RADIUS:g} {_RADIUS:g} 0 0 1 {x2:.2f} {y2:.2f}"


def _point(turn: float) -> tuple[float, float]:
    angle = turn * 2 * pi
    return _CENTRE + _RADIUS * sin(angle), _CENTRE - _RADIUS * cos(angle)
