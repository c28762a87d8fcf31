"""Bounded waits for Kafka, of what ends by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final

from tailrace_schemas.errors import ServiceError

log: Final = logging.getLogger("tailrace_spark")

_PAUSE_SECONDS: Final = 2.0
# Settings of Java's client; the second must not be less than the first.
_ANSWER_TIMES: Final = ("request.timeout.ms", "default.api.timeout.ms")
_LEAST_ANSWER_MS: Final = 5_000


def answer_times(patience: float | None, options: Mapping[str, object]) -> dict[str, str]:
    """Shorter timeouts of Kafka for a stream that ends after `patience` seconds, since Spark asks three times more.

    None for a stream that waits on, or where the operator's `options` have timeouts.
    """
    if patience is None or not options.keys().isdisjoint(_ANSWER_TIMES):
        return {}
    timeout = str(max(_LEAST_ANSWER_MS, int(patience * 250)))
    return {f"kafka.{name}": timeout for name in _ANSWER_TIMES}


def await_kafka(
    ask: Callable[[], object],
    seconds: float,
    *,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Return once `ask` raises no ServiceError, or `wait`, which passes seconds, says to stop.

    Raises ServiceError after so many seconds.
    """
    end = clock() + seconds
    while True:
        try:
            ask()
        except ServiceError as error:
            remaining = end - clock()
            if remaining <= 0:
                raise ServiceError(
                    f"Kafka has not answered for {seconds:g} s (stream.once_wait_seconds), and `stream --once` ends "
                    f"without reading anything: {error}"
                ) from error
            log.warning("Kafka does not answer; `stream --once` tries again for %.0f s: %s", remaining, error)
        else:
            return
        if wait(min(_PAUSE_SECONDS, max(0.0, remaining))):
            return
