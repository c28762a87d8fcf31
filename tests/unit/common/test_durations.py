"""Lengths of time for people."""

from __future__ import annotations

import pytest

from tailrace_common.durations import duration_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (0.4, "0 s"), (119.0, "119 s"), (1879, "31 min"), (7200.0, "2 h"), (200_000.0, "2 d")],
)
def test_a_length_has_one_unit(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words
