"""What health, metrics and log say of a slow Kafka: how slow, how far behind the agent is, and which settings help."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from tailrace.ops.health import HealthBoard
from tailrace_common.kafka import Pace

_LOG: Final = logging.getLogger("tailrace.agent")
_LOG_SECONDS: Final = 60.0
_TELL_SECONDS: Final = 1.0
_CAUSE: Final = "slow"


class Slowness:
    """Tells what `pace` has learned. `clock` is monotonic, in seconds."""

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
            self._health.recover(_CAUSE)
            _LOG.info("Kafka is no longer slow")

    def _tell_slow(self, now: float) -> None:
        words = slow_words(self._pace, self._health)
        self._health.degrade(_CAUSE, words)
        if not self._was_slow or now - self._logged >= _LOG_SECONDS:
            self._logged = now
            _LOG.warning("%s", words)
        self._was_slow = True


def slow_words(pace: Pace, health: HealthBoard) -> str:
    """How slow Kafka is, what that means, and what to do."""
    rate = "an unknown number of" if pace.throughput is None else f"about {pace.throughput:,.0f}"
    gauges = health.now.gauges
    lag = f"{health.now.behind(health.seconds()):.0f} s behind"
    if "waiting_segments" in gauges:
        mebibytes = gauges.get("waiting_bytes", 0) / (1 << 20)
        lag += f", {gauges['waiting_segments']:.0f} segments wait ({mebibytes:.0f} MiB)"
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
