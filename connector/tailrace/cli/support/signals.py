"""Signals that end a command as Ctrl-C does: SIGTERM, and SIGHUP when its terminal is closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> tuple[signal.Signals, ...]:
    """The signals that end a command.

    SIGINT also where it is ignored: a shell ignores it for commands that it starts in the background. Not SIGHUP where
    it is ignored, as by nohup.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return _NUMBERS[:-1]
    return _NUMBERS


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
