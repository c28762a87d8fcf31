"""Words of 64 bits: signed, as Java's long and compiled code have them."""

from __future__ import annotations

from mypy_extensions import i64


def word_of(high: i64, low: i64) -> i64:
    """The signed word of its upper 32 bits, signed, and its lower ones.

    For constants of more than 62 bits, which compiled code would keep as objects and take apart at each use.
    """
    return high << 32 | low
