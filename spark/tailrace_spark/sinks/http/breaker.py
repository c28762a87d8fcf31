"""A circuit breaker: after some failures in a row nothing is tried for a while, then one request tries."""

from __future__ import annotations

import threading
from collections.abc import Callable


class OpenError(Exception):
    """The breaker is open: nothing is sent for `seconds` more."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Breaker:
    """Any thread may use it. `clock` gives monotonic seconds."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = failures
        self._seconds = seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._probing = False

    def admit(self) -> None:
        """Ask before each request, and tell afterwards how it went. Raises OpenError.

        When the time is over one request is admitted, and the others wait for how it goes.
        """
        with self._lock:
            remaining = self._until - self._clock()
            if remaining > 0 or self._probing:
                raise OpenError(max(remaining, 0.0))
            self._probing = self._failures >= self._limit

    def succeeded(self) -> None:
        """A request was answered as it should be: the breaker closes."""
        with self._lock:
            self._failures, self._until, self._probing = 0, 0.0, False

    def failed(self) -> None:
        """A request failed."""
        with self._lock:
            self._failures += 1
            self._probing = False
            if self._failures >= self._limit:
                self._until = self._clock() + self._seconds
