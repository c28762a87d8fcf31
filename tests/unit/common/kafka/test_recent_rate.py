"""The mean rate of late."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.kafka.recent_rate import HALF_LIFE_SECONDS, RecentRate

STRETCHES = st.lists(st.tuples(st.integers(0, 1 << 30), st.floats(0.001, 600)), min_size=1, max_size=20)


def mean(stretches: Sequence[tuple[float, float]]) -> float:
    rate = RecentRate()
    for size, seconds in stretches:
        rate = rate.after(size, seconds)
    assert rate.per_second is not None
    return rate.per_second


def test_nothing_sent_has_no_rate() -> None:
    assert RecentRate().per_second is None
    assert mean([(1000, 0.0)]) > 0


@given(STRETCHES)
def test_it_lies_between_the_slowest_and_the_fastest(stretches: list[tuple[int, float]]) -> None:
    rates = [size / seconds for size, seconds in stretches]
    assert min(rates) * 0.999 - 1 <= mean(stretches) <= max(rates) * 1.001 + 1


@given(st.integers(1, 1 << 30), st.lists(st.floats(0.01, 60), min_size=1, max_size=20), STRETCHES)
def test_the_parts_of_a_stretch_count_as_the_whole(
    rate: int, parts: list[float], before: list[tuple[int, float]]
) -> None:
    cut = [(rate * part, part) for part in parts]  # not rounded: half a byte is much of a slow rate
    assert mean([*before, *cut]) == pytest.approx(
        mean([*before, (sum(size for size, _ in cut), sum(parts))]), rel=1e-6, abs=1e-6
    )


@given(st.integers(1, 1 << 24), st.integers(1, 1 << 24))
def test_what_was_before_is_forgotten_by_halves(old: int, new: int) -> None:
    """After each half-life the difference from the new speed is half of what it was, once the old one had time."""
    long = RecentRate().after(old * 600, 600)
    distances = []
    for half_lives in range(1, 6):
        rate = long.after(new * HALF_LIFE_SECONDS * half_lives, HALF_LIFE_SECONDS * half_lives).per_second
        assert rate is not None
        distances.append(abs(rate - new))
    for before, after in pairwise(distances):
        assert after == pytest.approx(before / 2, rel=0.01, abs=1)


def test_a_burst_of_a_quota_does_not_last() -> None:
    """Eleven seconds' worth at once, then a hundred thousand bytes a second in uneven transactions."""
    stretches = [(1_100_000, 0.1), *[(50_000, 0.05), (50_000, 0.95)] * 19]
    assert 50_000 < mean(stretches) < 200_000
