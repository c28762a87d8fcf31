"""Waits that grow from one failure to the next: the one rule of them, and attempts that follow it."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
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
