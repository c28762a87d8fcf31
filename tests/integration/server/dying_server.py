"""`tailrace server` that dies by -9 at a named step for the nth time, or waits there while others are killed.

Run with the name of the step and the number, then the program's own arguments. With `-` and 0 the steps come meanwhile:
a file `next` in the working directory has one, and its number. At that step the file becomes `reached`, and the program
waits until that is removed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkContext

import tailrace_server.meta.subscriptions
from tailrace.cli.main import run
from tailrace.local.process import wait_until
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.worker.run import StreamRun
from tailrace_spark.sinks.sql.piece_merges import PieceMerges


class Step(StrEnum):
    """Where somebody dies. What `is being kept` is in its transaction."""

    KEEPING = "a new subscription is being kept"
    KEPT = "a new subscription is kept, before that is answered"
    CLAIMING = "a claim is being kept"
    CLAIMED = "a claim is kept, before it runs"
    RENEWING = "leases are being renewed"
    BEGINNING = "where a stream begins is being kept"
    WRITING = "in the sink's transaction, after a piece"
    COMMITTED = "after the sink's commit, before progress"
    SAVING = "progress is being kept"
    SAVED = "progress is kept"
    NOTING = "a snapshot's progress is being kept"
    NOTED = "a snapshot's progress is kept"


NEXT, REACHED = Path("next"), Path("reached")
WAIT_SECONDS = 600.0
T = TypeVar("T")


class Death:
    """Counts how often the process was at a step, and lets somebody die when it is time."""

    step: Step | None = None
    left = 0
    waits = False
    """Whether it lives on, and steps come by a file."""
    _changed = threading.Lock()
    _inside = threading.local()

    @classmethod
    def at(cls, step: Step) -> None:
        """The process is at a step. Only one thread is there at a time."""
        with cls._changed:
            if cls.step is None and cls.waits and NEXT.exists():
                cls.step, cls.left = step_of(NEXT.read_text())
            if step is not cls.step:
                return
            cls.left -= 1
            if cls.left == 0:
                cls.step = None
                if cls.waits:
                    NEXT.replace(REACHED)
                    wait_until(lambda: not REACHED.exists(), WAIT_SECONDS)
                else:
                    die()

    @classmethod
    def within(cls, step: Step, call: Callable[..., T]) -> Callable[..., T]:
        """The same; what it asks the meta database for is this step."""

        def called(*arguments: Any, **more: Any) -> T:
            cls._inside.step = step
            try:
                return call(*arguments, **more)
            finally:
                del cls._inside.step

        return called

    @classmethod
    def in_transaction(cls) -> None:
        """A transaction has begun, and has changed something."""
        if (step := getattr(cls._inside, "step", None)) is not None:
            cls.at(step)


def step_of(text: str) -> tuple[Step, int]:
    """From a line for each: a step and its number."""
    step, number = text.split("\n")
    return Step(step), int(number)


def die() -> None:
    """kill -9 of the Java, then of this process."""
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(ProcessLookupError):
            os.killpg(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _then(step: Step, call: Callable[..., T], counts: Callable[[T], object] = lambda _: True) -> Callable[..., T]:
    """The same, and then perhaps the end, where what it gave counts."""

    def called(*arguments: Any, **more: Any) -> T:
        result = call(*arguments, **more)
        if counts(result):
            Death.at(step)
        return result

    return called


def _first(step: Step, call: Callable[..., T]) -> Callable[..., T]:
    """The same, and before it perhaps the end."""

    def called(*arguments: Any, **more: Any) -> T:
        Death.at(step)
        return call(*arguments, **more)

    return called


def _in_transaction(call: Callable[..., T]) -> Callable[..., T]:
    def called(*arguments: Any, **more: Any) -> T:
        result = call(*arguments, **more)
        Death.in_transaction()
        return result

    return called


def _prepare() -> None:
    """Put the steps where they are in the program."""
    leases: Any = Leases
    leases._claim = _then(Step.CLAIMING, leases._claim, lambda claim: claim is not None)
    leases.claim = _then(Step.CLAIMED, leases.claim, bool)
    leases._announce = _then(Step.RENEWING, leases._announce)
    leases._require = _in_transaction(leases._require)
    leases.positions = Death.within(Step.BEGINNING, leases.positions)
    leases.save = _then(Step.SAVED, Death.within(Step.SAVING, leases.save))
    leases.save_snapshots = _then(Step.NOTED, Death.within(Step.NOTING, leases.save_snapshots))
    streams: Any = StreamRun
    streams._wrote = _first(Step.COMMITTED, streams._wrote)
    merges: Any = PieceMerges
    merges.merge = _then(Step.WRITING, merges.merge, bool)
    subscriptions: Any = Subscriptions
    subscriptions._subscribe = Death.within(Step.KEEPING, subscriptions._subscribe)
    keeping: Any = tailrace_server.meta.subscriptions
    keeping.subscription_of = _in_transaction(keeping.subscription_of)
    subscriptions.subscribe = _then(Step.KEPT, subscriptions.subscribe)


if __name__ == "__main__":
    step, number = sys.argv.pop(1), int(sys.argv.pop(1))
    Death.waits = step == "-"
    if not Death.waits:
        Death.step, Death.left = Step(step), number
    _prepare()
    run()
