"""Signals that end a command: at once as Ctrl-C does, or in order, when what is under way is finished."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_INTERRUPTING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that end a command.

    SIGINT also where it is ignored: a shell ignores it for commands that it starts in the background. Not SIGHUP where
    it is ignored, as by nohup.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return _INTERRUPTING[:-1]
    return _INTERRUPTING


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let them interrupt as Ctrl-C does: KeyboardInterrupt in the main thread. The old handlers come back after.

    A closed terminal interrupts once. The shell's own SIGHUP does not interrupt the clean-up that follows, and its
    output goes nowhere instead of failing.
    """
    interrupt = _Interrupt()
    handlers = {signal_number: signal.signal(signal_number, interrupt) for signal_number in ending_signals()}
    try:
        yield
    finally:
        for signal_number, handler in handlers.items():
            if signal_number != signal.SIGHUP or not interrupt.ending:
                signal.signal(signal_number, handler)


class _Interrupt:
    """The handler. `ending` says whether there was an interrupt."""

    def __init__(self) -> None:
        # Asked now: of a terminal that is closed nobody can tell that it was one.
        self._terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
        self.ending = False

    def __call__(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            self._let_go()
            if self.ending:
                return
        self.ending = True
        raise KeyboardInterrupt

    def _let_go(self) -> None:
        null_device = os.open(os.devnull, os.O_WRONLY)
        for descriptor in self._terminals:
            os.dup2(null_device, descriptor)
        os.close(null_device)


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
