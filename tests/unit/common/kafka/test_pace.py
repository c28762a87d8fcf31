"""What is learned of Kafka's speed: limits that shrink and grow, and longer transactions for what needs them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.kafka import Pace
from tailrace_common.kafka.pace import HALF_LIFE_SECONDS, RecentRate
from tests.support.clock import ManualClock

MIB = 1 << 20
STRETCHES = st.lists(st.tuples(st.integers(0, 1 << 30), st.floats(0.001, 600)), min_size=1, max_size=20)


def pace(rate: float | None = None, clock: ManualClock | None = None) -> Pace:
    return Pace(10, 600, clock or ManualClock(), rate)


def test_a_time_out_makes_transactions_smaller_by_what_came_through() -> None:
    """A quarter of the time-out at the rate that was seen; half as many bytes at least, and never below 64 KiB."""
    learned = pace()
    assert (learned.limit, learned.slow) == (16 * MIB, False)
    learned.timed_out(8 * MIB, 3_200_000, 8.0)
    assert (learned.limit, learned.rate, learned.slow) == (1_000_000, 400_000, True)
    learned.timed_out(900_000, 890_000, 8.0)
    assert learned.limit == 278_125
    for _ in range(10):
        learned.timed_out(learned.limit, 0, 8.0)
    assert learned.limit == 64 << 10


def test_nothing_acknowledged_is_not_called_slow() -> None:
    """Kafka may be away: transactions get smaller, and that is all."""
    learned = pace()
    learned.timed_out(200, 0, 8.0)
    assert (learned.slow, learned.needed(200)) == (False, 10)


def test_it_grows_back_and_forgets() -> None:
    """Twice as large each time that the limit was used in time, in small steps near the size that failed last; after a
    minute without a slow one nothing is left of it."""
    clock = ManualClock()
    learned = pace(clock=clock)
    learned.timed_out(4 * MIB, MIB, 8.0)
    sizes = [learned.limit]
    for _ in range(6):
        learned.came_through(learned.limit, 0.5)
        sizes.append(learned.limit)
    assert all(before < after for before, after in pairwise(sizes))
    assert sizes[-1] < 4 * MIB
    learned.came_through(1000, 0.5)
    assert learned.limit == sizes[-1], "a small transaction says nothing"
    clock.wait(61)
    assert not learned.slow
    for _ in range(10):
        learned.came_through(learned.limit, 0.5)
    assert (learned.limit, learned.rate) == (16 * MIB, None)


def test_a_slow_commit_makes_them_smaller_too() -> None:
    learned = pace()
    learned.came_through(8 * MIB, 8.0)
    assert (learned.limit, learned.rate, learned.slow) == (8 * MIB * 10 // 32, MIB, True)


@pytest.mark.parametrize(
    ("rate", "size", "seconds"),
    [(None, 64 * MIB, 10), (MIB, MIB, 10), (MIB, 30 * MIB, 60), (1000, 100 * MIB, 600), (1, 8 << 10, 11), (1, 100, 10)],
)
def test_a_large_mutation_gets_twice_the_time_that_is_expected(rate: float | None, size: int, seconds: int) -> None:
    """Within the settings' bounds, and never for less than 8 KiB a second."""
    assert pace(rate).needed(size) == seconds


def test_the_time_out_is_longer_for_what_needs_it_alone() -> None:
    learned = pace(MIB)
    assert learned.suits(MIB)
    assert not learned.suits(30 * MIB)
    assert (learned.seconds, learned.suits(30 * MIB), learned.suits(20 * MIB)) == (60, True, True)
    assert not learned.suits(MIB)
    assert learned.seconds == 10


def test_where_kafka_refuses_so_long_a_time_out_half_of_it_is_asked_for() -> None:
    learned = pace(MIB)
    assert not learned.suits(100 * MIB)
    learned.refused()
    assert (learned.longest, learned.seconds, learned.needed(1000 * MIB)) == (100, 100, 100)


def test_a_quota_s_wait_comes_before_a_transaction() -> None:
    """Answers that no quota concerns do not end it; the rate is that of transaction and wait."""
    clock = ManualClock()
    learned = pace(clock=clock)
    learned.throttle(2.5)
    learned.throttle(0.0)
    clock.wait(1.0)
    assert (learned.silence, learned.slow, learned.throttled) == (1.5, True, 2.5)
    clock.wait(2.0)
    assert learned.silence == 0
    learned.came_through(MIB, 0.5, 2.0)
    assert learned.rate == MIB / 2.5


def test_how_fast_kafka_was_before_it_got_slow_does_not_count() -> None:
    """Nor is the throughput that of the last transaction alone."""
    clock = ManualClock()
    learned = pace(clock=clock)
    assert learned.throughput is None
    for _ in range(20):
        learned.came_through(10 * MIB, 1.0)
    assert learned.throughput == pytest.approx(10 * MIB)
    learned.came_through(400_000, 4.0)
    assert learned.throughput == pytest.approx(100_000)
    learned.came_through(200_000, 0.2, 1.8)
    learned.came_through(200_000, 4.0)
    assert learned.throughput == pytest.approx(71_600, rel=0.01)
    assert learned.rate == 50_000
    clock.wait(61)
    learned.timed_out(8 * MIB, 160_000, 8.0)
    assert learned.throughput == pytest.approx(20_000)


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
