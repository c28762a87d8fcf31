"""Lengths of time for people: 12 s, 31 min, 4 h, 9 d."""

from __future__ import annotations


def duration_words(seconds: float) -> str:
    """So many seconds in the largest unit that fits twice; what is below 0, as clocks differ, is 0."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
