"""Sweeps: a sink removes expired rows between batches, since expiry logs no change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from tailrace_common.backoff import Backoff, Waits
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.sinks.protocol import Sink

log = logging.getLogger("tailrace_spark")

_SWEEP_SECONDS: Final = 2.0
_WAITS: Final = Waits(2 * _SWEEP_SECONDS, 60.0)


class Sweeper:
    """Sweeps a sink every two seconds, if it is one that can be swept.

    After each failure it waits twice as long, at most a minute, until a sweep succeeds.

    `sink_lock` is held by whoever uses the sink: nothing is swept while a batch is being written.
    """

    def __init__(
        self, sink: Sink, sink_lock: threading.Lock, metrics: StreamMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sweeping = sink.capabilities.sweeping
        self._sink_lock = sink_lock
        self._metrics = metrics
        self._clock = clock
        self._swept = clock()
        self._pause = _SWEEP_SECONDS
        self._backoff = Backoff(_WAITS)

    def run(self) -> None:
        """Sweep if it is due and the sink is free. A failure is logged, and a later sweep tries again."""
        if self._sweeping is None or self._clock() < self._swept + self._pause:
            return
        if not self._sink_lock.acquire(blocking=False):
            return
        try:
            self._metrics.swept(self._sweeping.sweep())
            self._pause = _SWEEP_SECONDS
            self._backoff.reset()
        except ServiceError as error:
            self._pause = self._backoff.next()
            words = f"could not remove expired rows from the sink, and readers see them: {error}"
            log.warning("%s", with_next_try(words, self._pause))
        finally:
            self._swept = self._clock()
            self._sink_lock.release()
