"""Bytes a second of late, however unevenly they came: older ones count less, by an exponential mean over time. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final

HALF_LIFE_SECONDS: Final = 5.0
"""What was sent so many seconds ago counts half. Kafka reckons a quota over eleven seconds, and lets a client send what
it has saved at once: that is not to be taken for its speed for long."""
_TAU: Final = HALF_LIFE_SECONDS / log(2)
_LEAST_SECONDS: Final = 0.001


@dataclass(frozen=True, slots=True)
class RecentRate:
    """Weighted bytes and seconds of what was sent. To cut a stretch of one speed into parts changes nothing."""

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
