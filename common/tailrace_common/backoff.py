"""Waits that grow from one failure to the next: the one rule of them, and attempts that follow it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

_MOST_DOUBLINGS: Final = 64  # of which every wait is the longest, and no float too large

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds to wait behind failures in a row: `first`, twice as long each time, `longest` at most."""

    first: float
    longest: float

    def after(self, failures: int, shortened: float = 0.0) -> float:
        """The wait behind so many failures, from one on.

        `shortened`, a random number from 0 to 1, takes up to a half of it away. Without it all who wait for the same
        service would ask it at the same moment.
        """
        seconds = self.first * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return min(self.longest, seconds) * (1 - shortened / 2)


class Backoff:
    """The waits of one row of failures. Owned by one thread."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._failures = 0

    def next(self) -> float:
        """Another failure: seconds to wait now."""
        self._failures += 1
        return self._waits.after(self._failures)

    def reset(self) -> None:
        """Something succeeded: the next failure is the first of a row."""
        self._failures = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """What attempts need of the world: the time, waits, and random numbers from 0 to 1. Tests give others."""

    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    chance: Callable[[], float] = random.random


def repeated(
    attempt: Callable[[], T],
    waits: Waits,
    again: Callable[[Exception], bool | float],
    *,
    seconds: float | None = None,
    attempts: int | None = None,
    timing: Timing = Timing(),
) -> T:
    """The result of the first attempt that succeeds; raises the last one's error where there is no other.

    `again` says of an error whether another attempt may help, or the seconds that the service asks to wait before it.
    There are at most so many `attempts`, and none begins later than so many `seconds` behind the first.
    """
    end = math.inf if seconds is None else timing.clock() + seconds
    failures = 0
    while True:
        try:
            return attempt()
        except Exception as error:
            failures += 1
            verdict, remaining = again(error), end - timing.clock()
            pause = min(remaining, waits.after(failures, timing.chance())) if verdict is True else float(verdict)
            if verdict is False or failures == attempts or remaining <= 0 or pause > remaining:
                raise
        timing.wait(pause)


WAITS: Final = Waits(0.2, 10.0)


class RetryableError(Exception):
    """A request that failed may succeed later; `after`: seconds that the server asks to wait."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class RetryPolicy:
    """Repeats attempts for at most `seconds`. Any thread may use it."""

    def __init__(self, seconds: float, waits: Waits = WAITS) -> None:
        self._seconds = seconds
        self._waits = waits
        self._ended = False

    def run(self, attempt: Callable[[], None]) -> None:
        """Make one attempt after another while they raise RetryableError.

        Raises the last one when the time is over, when it asks for a longer wait than that, or after `end`.
        """
        repeated(attempt, self._waits, self._again, seconds=self._seconds)

    def end(self) -> None:
        """Repeat no attempt any more, of any thread."""
        self._ended = True

    def _again(self, error: Exception) -> bool | float:
        if not isinstance(error, RetryableError) or self._ended:
            return False
        return True if error.after is None else error.after


def retry_after(value: str | None, now: Callable[[], datetime]) -> float | None:
    """The seconds that a Retry-After header asks for (RFC 9110, 10.2.3): a number, or a date; None for neither."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    with suppress(ValueError, TypeError):
        date = parsedate_to_datetime(value)
        return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now().timestamp())
    return None
