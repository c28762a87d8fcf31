"""A service that fails for long: logged at once, and again every minute with how long and how much waits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tailrace.ops.health import HealthBoard

_LOG: Final = logging.getLogger("tailrace.agent")
_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 5.0
Alarm = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls a function after so many seconds, from a thread of its own, unless the returned function is called before."""


class Outage:
    """Failures in a row. `clock` is monotonic, in seconds."""

    def __init__(self, health: HealthBoard, clock: Callable[[], float], alarm: Alarm | None = None) -> None:
        self._health = health
        self._clock = clock
        self._alarm = alarm or _alarm
        self._since: float | None = None
        self._logged = 0.0
        self._words = ""

    @contextmanager
    def attempting(self, service: str) -> Iterator[None]:
        """While inside, a service is asked. A silence of five seconds is said, until an attempt has failed."""
        if self._since is not None:
            yield
            return
        cancel = self._alarm(_SILENT_SECONDS, partial(self._silent, service))
        try:
            yield
        finally:
            cancel()

    def _silent(self, service: str) -> None:
        words = f"{service} has not answered for {_SILENT_SECONDS:g} s. Nothing is published until it does"
        if self._health.degrade("service", words):
            _LOG.warning("%s; the agent goes on trying", words)

    def failed(self, error: Exception) -> None:
        """An attempt has failed; logged where it says something new."""
        self._words = str(error)
        is_news = self._health.degrade("service", self._words)
        if self._since is None:
            self._since = self._clock()
        if is_news:
            self._logged = self._clock()
            _LOG.error("nothing is published, and the agent tries again: %s", error)
        else:
            self.remind()

    def remind(self) -> None:
        """Log again, once a minute."""
        if self._since is None or self._clock() - self._logged < _SECONDS:
            return
        self._logged = self._clock()
        _LOG.error("nothing was published for %s%s: %s", self._age(), self._waiting(), self._words)

    def wait(self, seconds: float, pause: Callable[[float], None]) -> None:
        """Wait so long before the next attempt, by `pause`, which may end early."""
        until_reminder = self._logged + _SECONDS - self._clock()
        if 0 < until_reminder < seconds:
            pause(until_reminder)
            self.remind()
            seconds -= until_reminder
        pause(seconds)

    def over(self) -> None:
        """An attempt has succeeded."""
        self._health.recover("service")
        if self._since is not None:
            _LOG.info("publishing again, after %s%s", self._age(), self._waiting())
            self._since = None

    def _age(self) -> str:
        seconds = 0.0 if self._since is None else self._clock() - self._since
        return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

    def _waiting(self) -> str:
        gauges = self._health.now.gauges
        if "waiting_segments" not in gauges:
            return ""
        mebibytes = gauges.get("waiting_bytes", 0) / (1 << 20)
        return f"; {gauges['waiting_segments']:.0f} segments wait ({mebibytes:.0f} MiB)"


def _alarm(seconds: float, ring: Callable[[], None]) -> Callable[[], None]:
    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    return timer.cancel
