"""How much Kafka takes in a transaction's time, as the transactions show that were committed, or were not."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log
from typing import Final

from tailrace_common.kafka.client import Clock

# A transaction is to need no more than this part of its time-out.
_SHARE: Final = 0.25
# What fails or lasts below that many bytes says nothing of Kafka's speed.
_LEAST_BYTES: Final = 64 << 10
SUPPOSED: Final = 100_000.0
"""Bytes a second that a command, which cannot try twice, takes Kafka to be as slow as at first."""
_MOST_BYTES: Final = 16 << 20
# Near the size that failed last the limit grows by this part of itself; before that it doubles.
_STEPS: Final = 8
# A longer time-out is for twice the time that is expected, and never for less than so many bytes a second: while Kafka
# is away nothing gets through at all.
_MARGIN: Final = 2.0
_SLOWEST: Final = 8 << 10
# Slow is what was slow within so many seconds.
_SLOW_SECONDS: Final = 60.0
HALF_LIFE_SECONDS: Final = 5.0
"""What was sent so many seconds ago counts half. Kafka reckons a quota over eleven seconds, and lets a client send what
it has saved at once: that is not to be taken for its speed for long."""
_TAU: Final = HALF_LIFE_SECONDS / log(2)
_LEAST_SECONDS: Final = 0.001


class Pace:
    """What transactions may have and how long they may last; one for all producers that a process makes.

    `normal` is the limit for an open transaction, in seconds, as the settings have it. `longest` is the limit for
    records that must be in one transaction and need more. With `rate`, in bytes a second, Kafka is taken to be as slow
    as that from the start on, for who cannot try twice. One thread changes it, any may read it.
    """

    def __init__(self, normal: int, longest: int, clock: Clock, rate: float | None = None) -> None:
        self._clock = clock
        self.normal = normal
        self.longest = max(normal, longest)
        self.seconds = normal
        """The limit for an open transaction that the next producer asks for."""
        self.rate = rate
        """Bytes a second that Kafka took when it was slow; None: it never was."""
        self.limit = _MOST_BYTES if rate is None else max(_LEAST_BYTES, int(rate * self._target))
        """The most bytes that a transaction is to have, unless it is one mutation."""
        self.throttled = 0.0
        """Seconds for which Kafka's quota last made this client wait."""
        self.failed = 0
        """Bytes of the last transaction that was given up for want of time."""
        self._recent = RecentRate()
        self._silent_until = float("-inf")
        self._slow_at = float("-inf")
        self._failed_size = 2 * _MOST_BYTES

    @property
    def slow(self) -> bool:
        """Whether Kafka was slow just now."""
        return self._clock() - self._slow_at < _SLOW_SECONDS

    @property
    def throughput(self) -> float | None:
        """Bytes a second that Kafka took of late, since it got slow, of transactions that came through or not; None
        before there were any. `rate`, which is the last one's, is for what is sent next."""
        return self._recent.per_second

    @property
    def silence(self) -> float:
        """Seconds for which the broker will not listen to this client yet, as a quota says."""
        return max(0.0, self._silent_until - self._clock())

    def came_through(self, size: int, seconds: float, waited: float = 0.0) -> None:
        """A transaction of so many bytes was committed so long after it began, and had waited before that."""
        self.failed = 0
        if size < _LEAST_BYTES:
            return
        if seconds > self._target:
            self._be_slow()
        self._recent = self._recent.after(size, seconds + waited)
        measured = size / max(seconds + waited, 0.001)
        if seconds > self._target:
            self.rate = measured
            self.limit = self._bounded(int(size * self._target / seconds))
            return
        if waited:
            self.rate = measured
        if 2 * size >= self.limit:
            self._grow(bool(waited))

    def _grow(self, waited: bool) -> None:
        """The limit was used, and there was time left."""
        if not self.slow:
            self._failed_size = 2 * _MOST_BYTES
        quickly = 2 * self.limit < self._failed_size
        self.limit = self._bounded(2 * self.limit if quickly else self.limit + self.limit // _STEPS)
        if waited and self.rate is not None:
            # After a quota's wait some bytes come through at once: how many says nothing of the next ones.
            self.limit = self._bounded(min(self.limit, int(2 * self.rate * self._target)))
        if self.limit == _MOST_BYTES and not self.slow:
            self.rate = None

    def timed_out(self, size: int, acknowledged: int, seconds: float) -> None:
        """A transaction was given up after so many seconds; of its bytes Kafka had acknowledged so many."""
        if acknowledged:
            self._be_slow()
            self._recent = self._recent.after(acknowledged, seconds)
            self.rate = acknowledged / seconds
            allowed = int(self.rate * self._target)
        else:
            self.rate = (self.rate or size / seconds) / 2
            allowed = min(self.limit, size) // 4
        self.failed = size
        self._failed_size = min(self.limit, size)
        self.limit = self._bounded(min(self.limit // 2, allowed))

    def throttle(self, seconds: float) -> None:
        """Kafka says that it does not listen to this client for so long, as it has sent more than a quota allows."""
        if seconds > 0:  # answers of a coordinator, which no quota concerns, say 0
            self.throttled = seconds
            self._be_slow()
            self._silent_until = self._slow_at + seconds

    def needed(self, size: int) -> int:
        """Seconds that a transaction of so many bytes may need."""
        if self.rate is None:
            return self.normal
        seconds = ceil(_MARGIN * size / max(self.rate, 1.0))
        return min(max(self.normal, seconds), self.normal + size // _SLOWEST, self.longest)

    def suits(self, size: int, *, shorten: bool = True) -> bool:
        """Whether producers' transactions last as long as that many bytes need.

        With `shorten` they also may not last longer than usual for bytes that need no more. Where they do not suit,
        `seconds` is what the next producer is to ask for.
        """
        needed = self.needed(size)
        if needed <= self.seconds and not (shorten and needed == self.normal < self.seconds):
            return True
        self.seconds = needed
        return False

    def refused(self) -> None:
        """Kafka allows no transactions as long as `seconds`: none is asked for that is longer than half of that."""
        self.longest = max(self.normal, self.seconds // 2)
        self.seconds = min(self.seconds, self.longest)

    def _be_slow(self) -> None:
        """Kafka was slow just now. What it took before it got slow says nothing of how slow it is."""
        if not self.slow:
            self._recent = RecentRate()
        self._slow_at = self._clock()

    @property
    def _target(self) -> float:
        return _SHARE * self.normal

    @staticmethod
    def _bounded(size: int) -> int:
        return min(max(size, _LEAST_BYTES), _MOST_BYTES)


@dataclass(frozen=True, slots=True)
class RecentRate:
    """Bytes a second of late, however unevenly they came: older ones count less, by an exponential mean over time.
    Pure.

    Weighted bytes and seconds of what was sent. To cut a stretch of one speed into parts changes nothing.
    """

    size: float = 0.0
    seconds: float = 0.0

    def after(self, size: float, seconds: float) -> RecentRate:
        """The mean after so many bytes more, which took so many seconds."""
        lasted = max(seconds, _LEAST_SECONDS)
        decay: float = 0.5 ** (lasted / HALF_LIFE_SECONDS)
        weight = _TAU * (1 - decay)
        return RecentRate(self.size * decay + size / lasted * weight, self.seconds * decay + weight)

    @property
    def per_second(self) -> float | None:
        """Bytes a second; None before there were any."""
        return self.size / self.seconds if self.seconds else None
