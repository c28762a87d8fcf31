"""Waits between attempts: they grow, end at the longest, and are spread; attempts end by count and by time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_common.backoff import Backoff, Timing, Waits, repeated

WAITS = Waits(1.0, 8.0)


class Time:
    """A clock that waits alone move, and what was waited; `random` is always the same."""

    def __init__(self, random: float = 0.0) -> None:
        self.now = 100.0
        self.waited: list[float] = []
        self.timing = Timing(lambda: self.now, self._wait, lambda: random)

    def _wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.now += seconds


def failing(times: int, error: Exception | None = None) -> Callable[[], str]:
    """An attempt that fails so often, then succeeds."""
    left = [times]

    def attempt() -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise error or OSError(f"{left[0]} more")
        return "done"

    return attempt


def test_waits_double_up_to_the_longest() -> None:
    assert [WAITS.after(failures) for failures in (1, 2, 3, 4, 5, 10_000)] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_random_part_of_a_wait_is_at_most_half_of_it(failures: int, shortened: float) -> None:
    assert WAITS.after(failures) / 2 <= WAITS.after(failures, shortened) <= WAITS.after(failures)


def test_a_success_begins_a_row_anew() -> None:
    backoff = Backoff(WAITS)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 8.0, 8.0]
    backoff.reset()
    assert [backoff.next() for _ in range(2)] == [1.0, 2.0]


def test_attempts_are_repeated_with_growing_waits_that_chance_shortens() -> None:
    time = Time(random=0.5)
    assert repeated(failing(4), WAITS, lambda _: True, timing=time.timing) == "done"
    assert time.waited == [0.75, 1.5, 3.0, 6.0]


def test_what_may_not_be_repeated_is_raised_at_once() -> None:
    time = Time()
    with pytest.raises(OSError, match="2 more"):
        repeated(failing(3), WAITS, lambda error: "2 more" not in str(error), timing=time.timing)
    assert time.waited == []


def test_the_last_of_so_many_attempts_is_raised() -> None:
    time = Time()
    with pytest.raises(OSError, match="2 more"):
        repeated(failing(5), WAITS, lambda _: True, attempts=3, timing=time.timing)
    assert time.waited == [1.0, 2.0]
    assert repeated(failing(2), WAITS, lambda _: True, attempts=3, timing=time.timing) == "done"


def test_the_last_attempt_is_at_the_end_of_the_time() -> None:
    time = Time()
    with pytest.raises(OSError, match="95 more"):
        repeated(failing(100), WAITS, lambda _: True, seconds=10, timing=time.timing)
    assert time.waited == [1.0, 2.0, 4.0, 3.0]


def test_the_wait_that_a_service_asks_for_is_kept_where_there_is_time_for_it() -> None:
    time = Time(random=1.0)
    assert repeated(failing(2), WAITS, lambda _: 4.0, seconds=10, timing=time.timing) == "done"
    assert time.waited == [4.0, 4.0]
    with pytest.raises(OSError, match="1 more"):
        repeated(failing(2), WAITS, lambda _: 10.5, seconds=10, timing=time.timing)
    assert time.waited == [4.0, 4.0]
