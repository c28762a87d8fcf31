"""Signals that end a command in order: what is under way is finished first."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: threading.Event, log: logging.Logger, consequence: str) -> Iterator[None]:
    """While inside, SIGTERM and SIGINT set the event and log the consequence, instead of ending the process."""

    def tell(number: int, _frame: FrameType | None) -> None:
        log.info("%s: %s", signal.Signals(number).name, consequence)
        stop.set()

    handlers = {signal_number: signal.signal(signal_number, tell) for signal_number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for signal_number, handler in handlers.items():
            signal.signal(signal_number, handler)
