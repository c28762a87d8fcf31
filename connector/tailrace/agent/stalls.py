"""What keeps the run loop from getting on, in health and log: a service that fails, a slow Kafka, a standstill."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from tailrace.agent.limits import Limits
from tailrace.ops.health import HealthBoard
from tailrace_common.backoff import Backoff
from tailrace_common.durations import duration_words
from tailrace_common.kafka import Pace

_LOG: Final = logging.getLogger("tailrace.agent")
_REMIND_SECONDS: Final = 60.0
_SILENT_SECONDS: Final = 5.0
Alarm = Callable[[float, Callable[[], None]], Callable[[], None]]
"""Calls a function after so many seconds, from a thread of its own, unless the returned function is called before."""
_LOG_SECONDS: Final = 60.0
_TELL_SECONDS: Final = 1.0
_SLOW: Final = "slow"
STANDSTILL: Final = "no-progress"
# In normal life work repeats once or twice, as where a large mutation needs a new producer. It never does so often.
_ROUNDS: Final = 8
_WITHIN_SECONDS: Final = 10.0


class Outage:
    """A service that fails for long: logged at once, and again every minute with how long and how much waits.

    Failures in a row. `clock` is monotonic, in seconds.
    """

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
        if self._since is None or self._clock() - self._logged < _REMIND_SECONDS:
            return
        self._logged = self._clock()
        _LOG.error("nothing was published for %s%s: %s", self._age(), _waiting(self._health, "; "), self._words)

    def wait(self, seconds: float, pause: Callable[[float], None]) -> None:
        """Wait so long before the next attempt, by `pause`, which may end early."""
        until_reminder = self._logged + _REMIND_SECONDS - self._clock()
        if 0 < until_reminder < seconds:
            pause(until_reminder)
            self.remind()
            seconds -= until_reminder
        pause(seconds)

    def over(self) -> None:
        """An attempt has succeeded."""
        self._health.recover("service")
        if self._since is not None:
            _LOG.info("publishing again, after %s%s", self._age(), _waiting(self._health, "; "))
            self._since = None

    def _age(self) -> str:
        return duration_words(0.0 if self._since is None else self._clock() - self._since)


def _waiting(health: HealthBoard, joint: str) -> str:
    gauges = health.now.gauges
    if "waiting_segments" not in gauges:
        return ""
    mebibytes = gauges.get("waiting_bytes", 0) / (1 << 20)
    return f"{joint}{gauges['waiting_segments']:.0f} segments wait ({mebibytes:.0f} MiB)"


def _alarm(seconds: float, ring: Callable[[], None]) -> Callable[[], None]:
    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    return timer.cancel


class Slowness:
    """What health, metrics and log say of a slow Kafka: how slow, how far behind the agent is, which settings help.

    Tells what `pace` has learned. `clock` is monotonic, in seconds.
    """

    def __init__(self, pace: Pace, health: HealthBoard, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._health = health
        self._clock = clock
        self._told = self._logged = float("-inf")
        self._was_slow = False

    def tell(self) -> None:
        """Bring health up to date, at most once a second, and the log, once a minute while Kafka is slow."""
        now = self._clock()
        if now - self._told < _TELL_SECONDS:
            return
        self._told = now
        pace = self._pace
        self._health.gauge(
            transaction_bytes=pace.limit,
            transaction_seconds=pace.seconds,
            kafka_bytes_per_second=(pace.throughput or 0) if pace.slow else 0,
        )
        if pace.slow:
            self._tell_slow(now)
        elif self._was_slow:
            self._was_slow = False
            self._health.recover(_SLOW)
            _LOG.info("Kafka is no longer slow")

    def _tell_slow(self, now: float) -> None:
        words = slow_words(self._pace, self._health)
        self._health.degrade(_SLOW, words)
        if not self._was_slow or now - self._logged >= _LOG_SECONDS:
            self._logged = now
            _LOG.warning("%s", words)
        self._was_slow = True


def slow_words(pace: Pace, health: HealthBoard) -> str:
    """How slow Kafka is, what that means, and what to do."""
    rate = "an unknown number of" if pace.throughput is None else f"about {pace.throughput:,.0f}"
    lag = f"{duration_words(health.now.behind(health.seconds()))} behind{_waiting(health, ', ')}"
    if pace.throttled:
        advice = (
            f"A quota made this client wait {pace.throttled:.1f} s: raise producer_byte_rate of its user or client.id"
        )
    else:
        advice = "Look at the brokers, and at the network between"
    return (
        f"Kafka is slow: it takes {rate} bytes a second. The agent is {lag}. Transactions have {pace.limit:,} bytes "
        f"at most until that is better, and last {pace.seconds} s at most. {advice}. A mutation that needs more than "
        f"agent.transaction_timeout_seconds ({pace.normal}) gets up to agent.longest_transaction_seconds "
        f"({pace.longest})"
    )


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
            if now - self._quiet_since >= _WITHIN_SECONDS:
                self._over()
            return 0.0
        return self.repeated()

    def repeated(self) -> float:
        """A round did what earlier ones had done. How long to wait before the next."""
        now = self._quiet_since = self._clock()
        self._fruitless.append(now)
        if not self._stands and (len(self._fruitless) < _ROUNDS or now - self._fruitless[0] > _WITHIN_SECONDS):
            return 0.0
        if not self._stands:
            self._stands = True
            words = (
                f"the agent repeats its work and gets no further: {_ROUNDS} rounds within {_WITHIN_SECONDS:g} s "
                f"changed nothing. It goes on at intervals of up to {self._longest:g} s, and new changes may be "
                "that late. Please report this with the log"
            )
            self._health.degrade(STANDSTILL, words)
            _LOG.error("%s", words)
        seconds = self._backoff.next()
        self._quiet_since = now + seconds
        return seconds

    def _over(self) -> None:
        self._fruitless.clear()
        if self._stands:
            self._stands = False
            self._backoff.reset()
            self._health.recover(STANDSTILL)
            _LOG.info("the agent gets on again")
