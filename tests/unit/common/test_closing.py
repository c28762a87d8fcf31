"""Turns in a thread: an end that comes between a look for it and the wait behind it is not slept through."""

from __future__ import annotations

import threading
from contextlib import nullcontext

from tailrace_common.closing import Turns


class Ended(threading.Event):
    """Comes right behind the second look for it, which a turn and a wait follow."""

    def __init__(self, turns: Late) -> None:
        super().__init__()
        self._turns = turns
        self.looks = 0

    def is_set(self) -> bool:
        was_set = super().is_set()
        self.looks += 1
        if self.looks == 2:
            self.set()
            self._turns.wake()
        return was_set


class Late(Turns[None]):
    """Takes no second turn for an hour."""

    def __init__(self) -> None:
        super().__init__("late", nullcontext)
        self.ended: Ended = Ended(self)
        self.begin()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive()

    def _turn(self, opened: None) -> float:
        del opened
        return 3600.0

    def _failed(self, error: Exception) -> float:
        raise AssertionError(error)


def test_a_close_right_before_a_wait_ends_it() -> None:
    late = Late()
    late.join(60)
    assert late.ended.looks > 2
