"""Signals that end a command, and a terminal that is closed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tailrace_common.cli.signals import stopped_by_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("before", ["SIG_DFL", "SIG_IGN"])
def test_both_signals_interrupt(number: signal.Signals, before: str) -> None:
    """SIGINT also where it was ignored, as a shell does for what it starts in the background."""
    program = _WAITING.format(number=int(number), before=before)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.send_signal(number)
    rest, _ = process.communicate(timeout=600)
    assert (process.returncode, rest) == (0, "interrupted\n")


# Not signal.pause(): a signal that comes just before it is handled only after the next one.
_WAITING = """
import signal, time
from tailrace_common.cli.signals import stopped_by_signals
signal.signal({number}, signal.{before})
try:
    with stopped_by_signals():
        print("waits", flush=True)
        while True:
            time.sleep(0.01)
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal({number}) is signal.{before}
"""


def test_a_closed_terminal_interrupts_once_and_nothing_that_is_said_fails() -> None:
    """The kernel's SIGHUP interrupts; the cleaning up is not interrupted by another one."""
    ours, theirs = os.openpty()
    report, end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", _HANGING.format(report=end)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        pass_fds=(end,),
    )
    os.close(theirs)
    os.close(end)
    with os.fdopen(report) as said:
        assert said.readline() == "waits\n"
        os.close(ours)
        assert said.read() == "cleaned up\n"
    assert process.wait(60) == 0


_HANGING = """
import fcntl, os, signal, sys, termios, time
from tailrace_common.cli.signals import stopped_by_signals
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
try:
    with stopped_by_signals():
        os.write({report}, b"waits\\n")
        while True:
            time.sleep(0.01)
except KeyboardInterrupt:
    print("ended", flush=True)
    print("ended", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGHUP)
    os.write({report}, b"cleaned up\\n")
"""


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_come_back() -> None:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    try:
        before = [signal.getsignal(number) for number in numbers]
        with stopped_by_signals():
            assert all(signal.getsignal(number) is not old for number, old in zip(numbers, before, strict=True))
        assert [signal.getsignal(number) for number in numbers] == before
    finally:
        signal.signal(signal.SIGHUP, inherited)
