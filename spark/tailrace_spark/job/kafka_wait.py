"""A bounded wait for Kafka, of commands that end by themselves."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from tailrace_schemas.errors import ServiceError

log: Final = logging.getLogger("tailrace_spark")

_PAUSE_SECONDS: Final = 2.0


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
            left = end - clock()
            if left <= 0:
                raise ServiceError(
                    f"Kafka has not answered for {seconds:g} s (stream.once_wait_seconds), and `stream --once` ends "
                    f"without reading anything: {error}"
                ) from error
            log.warning("Kafka does not answer; `stream --once` tries again for %.0f s: %s", left, error)
        else:
            return
        if wait(min(_PAUSE_SECONDS, max(0.0, left))):
            return
