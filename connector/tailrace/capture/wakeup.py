"""One wait for many causes: whoever sees something sets the signal, the run loop waits for it with a time limit."""

from __future__ import annotations

import threading


class Signal:
    """Set from any thread, or from a signal handler; one waiter.

    The condition's lock is reentrant, because a handler runs in the waiter's own thread, perhaps while that holds it.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._set = False

    def set(self) -> None:
        """Something happened: the wait that runs, or the next one, returns at once."""
        with self._condition:
            self._set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until set, at most `seconds`; the signal is consumed. Whether it was set."""
        with self._condition:
            self._condition.wait_for(lambda: self._set, timeout=max(0.0, seconds))
            was, self._set = self._set, False
            return was
