"""A run loop that works and gets nowhere: found by what its rounds leave unchanged, whatever the cause."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from tailrace.agent.parts import Limits
from tailrace.ops.health import HealthBoard
from tailrace_common.backoff import Backoff

_LOG: Final = logging.getLogger("tailrace.agent")
CAUSE: Final = "no-progress"
# In normal life work repeats once or twice, as where a large mutation needs a new producer. It never does so often.
_ROUNDS: Final = 8
_SECONDS: Final = 10.0


class Standstill:
    """Judges the rounds of the run loop. `clock` is monotonic, in seconds.

    A round that did something must have changed something: the position, what is committed, what is set aside. Several
    in a row that did not are a fault of ours. Health then says so, the log once, and the rounds are spaced.
    """

    def __init__(self, health: HealthBoard, clock: Callable[[], float], limits: Limits) -> None:
        self._health = health
        self._clock = clock
        self._backoff = Backoff(limits.waits)
        self._longest = limits.retry_seconds_most
        self._state: object = None
        self._fruitless = deque[float](maxlen=_ROUNDS)  # when those ended that worked and changed nothing
        self._stands = False
        self._quiet_since = 0.0

    def judge(self, state: object, *, rested: bool) -> float:
        """A round is over, which left this state, and `rested` where there was nothing to do. How long to wait."""
        now = self._clock()
        if state != self._state:
            self._state = state
            self._over()
            return 0.0
        if rested:
            if now - self._quiet_since >= _SECONDS:
                self._over()
            return 0.0
        return self.repeated()

    def repeated(self) -> float:
        """A round did what earlier ones had done. How long to wait before the next."""
        now = self._quiet_since = self._clock()
        self._fruitless.append(now)
        if not self._stands and (len(self._fruitless) < _ROUNDS or now - self._fruitless[0] > _SECONDS):
            return 0.0
        if not self._stands:
            self._stands = True
            words = (
                f"the agent repeats its work and gets no further: {_ROUNDS} rounds within {_SECONDS:g} s changed "
                f"nothing. It goes on at intervals of up to {self._longest:g} s, and new changes may be that late. "
                "Please report this with the log"
            )
            self._health.degrade(CAUSE, words)
            _LOG.error("%s", words)
        seconds = self._backoff.next()
        self._quiet_since = now + seconds
        return seconds

    def _over(self) -> None:
        self._fruitless.clear()
        if self._stands:
            self._stands = False
            self._backoff.reset()
            self._health.recover(CAUSE)
            _LOG.info("the agent gets on again")
