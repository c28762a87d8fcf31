"""Retries of what a batch needs: a stream blocks on its batch until the sink, Kafka or the generations answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tailrace_common.backoff import Backoff, Waits
from tailrace_common.unreachable import problem_and_remedy, with_next_try
from tailrace_schemas.errors import ServiceError
from tailrace_spark.job.endings import StoppedError
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import PROCESSING

log = logging.getLogger("tailrace_spark")

SINK: Final = "sink"
"""The need that is retried at longer intervals: a store takes longer to come back than a broker."""

_SINK_WAITS: Final = Waits(0.5, 30.0)
_KAFKA_WAITS: Final = Waits(0.5, 2.0)

T = TypeVar("T")


@dataclass(slots=True)
class Blockage:
    """The time for which a stream has been blocked on a batch so far, and each reason once."""

    batch: int
    seconds: float = 0.0
    reasons: dict[str, None] = field(default_factory=dict)


class Retry:
    """Repeats an attempt after each ServiceError, with growing pauses.

    `pause` waits for some seconds and says whether the stream is to stop. `show` puts words into the query's status.
    """

    def __init__(
        self,
        metrics: StreamMetrics,
        pause: Callable[[float], bool],
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._pause = pause
        self._show = show
        self._clock = clock
        self.patience: float | None = None
        """Seconds until an attempt is given up, of a stream that ends by itself; None: never."""

    def until_done(self, blocked: Blockage, need: str, attempt: Callable[[], T]) -> T:
        """The attempt's result. `need` names what the batch waits for, as metrics have it.

        Raises StoppedError when the stream is stopped meanwhile, and ServiceError when its patience is at an end.
        """
        began, blocked_earlier, failed = self._clock(), blocked.seconds, False
        backoff = Backoff(_SINK_WAITS if need == SINK else _KAFKA_WAITS)
        while True:
            try:
                result = attempt()
            except ServiceError as error:
                reason, failed = f"{need}: {error}", True
                self._metrics.failed(need, *problem_and_remedy(error))
                if self.patience is not None and self._clock() - began >= self.patience:
                    limit = f"after {self.patience:g} s (stream.once_wait_seconds)"
                    raise ServiceError(f"batch {blocked.batch} is given up {limit} for the {reason}") from error
            else:
                if failed:
                    self._show(PROCESSING)
                    self._metrics.unblocked()
                return result
            blocked.reasons.setdefault(reason)
            pause = backoff.next()
            log.warning("%s", with_next_try(f"batch {blocked.batch} waits for the {reason}", pause))
            self._show(f"Batch {blocked.batch} waits for the {reason}")
            if self._pause(pause):
                raise StoppedError(need)
            blocked.seconds = blocked_earlier + self._clock() - began
