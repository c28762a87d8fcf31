"""Signals that end a command as Ctrl-C does: SIGTERM, and SIGHUP when its terminal is closed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ending_signals() -> tuple[signal.Signals, ...]:
    """What ends a command: SIGINT, ignored or not, as a shell ignores it for what it starts in the background; but not
    SIGHUP where it is ignored, which is what nohup is for."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return _NUMBERS[:-1]
    return _NUMBERS


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let them interrupt as Ctrl-C does: KeyboardInterrupt in the main thread. The old handlers come back after.

    A closed terminal interrupts once: whoever cleans up then is not interrupted by the shell's own SIGHUP, and what is
    still said goes nowhere instead of failing.
    """
    interrupt = _Interrupt()
    before = {number: signal.signal(number, interrupt) for number in ending_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if number != signal.SIGHUP or not interrupt.ending:
                signal.signal(number, handler)


class _Interrupt:
    """The handler. `ending` says whether there was an interrupt."""

    def __init__(self) -> None:
        # Asked now: of a terminal that is closed nobody can tell that it was one.
        self._terminals = [number for number in (1, 2) if os.isatty(number)]
        self.ending = False

    def __call__(self, number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            self._let_go()
            if self.ending:
                return
        self.ending = True
        raise KeyboardInterrupt

    def _let_go(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for number in self._terminals:
            os.dup2(nowhere, number)
        os.close(nowhere)
