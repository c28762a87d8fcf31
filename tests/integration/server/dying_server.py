"""`tailrace server` that dies by -9 at a named step for the nth time, waits there while others are killed, or stops.

Run with the name of the step and the number, then the program's own arguments. With `-` and 0 the steps come meanwhile:
a file `next` in the working directory has one, and its number. At that step the file becomes `reached`, and the program
waits until that is removed. With `=` and 0 the program stops itself there, as by SIGSTOP, until it is continued. Of
several in one directory that is the one that comes there first.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import tailrace_server.meta.subscriptions
import tailrace_spark.job.runner
from tailrace.cli.main import run
from tailrace_common.kafka import KafkaTransactions
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.worker.keeping import Keeper
from tailrace_spark.sinks.images.state import ScopeState
from tailrace_spark.sinks.lake import staging
from tailrace_spark.sinks.sql.merge import RowWriter
from tailrace_spark.sinks.sql.piece_merges import PieceMerges
from tests.integration.dying import Death, die
from tests.support.waiting import until


class Step(StrEnum):
    """Where somebody dies. What `is being kept` is in its transaction."""

    KEEPING = "a new subscription is being kept"
    KEPT = "a new subscription is kept, before that is answered"
    CLAIMING = "a claim is being kept"
    CLAIMED = "a claim is kept, before it runs"
    RENEWING = "leases are being renewed"
    BEGINNING = "where a stream begins is being kept"
    PLANNING = "before the sink's plan"
    READ = "in the sink's transaction, before what is read is written"
    WRITING = "in the sink's transaction, after a piece"
    COMMITTING = "before the sink's commit"
    COMMITTED = "after the sink's commit, before progress"
    SAVING = "progress is being kept"
    SAVED = "progress is kept"
    NOTING = "a snapshot's progress is being kept"
    NOTED = "a snapshot's progress is kept"


NEXT, REACHED = Path("next"), Path("reached")
WAIT_SECONDS = 600.0
T = TypeVar("T")


class Moments(Death):
    """Lets somebody die when it is time. Only one thread is at a step at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = self.stops = False
        """Whether the process lives on, and steps come by a file; and whether it stops itself there."""
        self._changed = threading.Lock()
        self._inside = threading.local()

    def at(self, step: StrEnum) -> None:
        """As Death says."""
        if self.stops:
            if taken(step):
                # This thread first: told of the process alone, it would go on for a moment.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            return
        with self._changed:
            if self.step is None and self.waits and NEXT.exists():
                self.step, self.left = step_of(NEXT.read_text())
            if step is not self.step:
                return
            self.left -= 1
            if self.left == 0:
                self.step = None
                if self.waits:
                    NEXT.replace(REACHED)
                    until(lambda: not REACHED.exists(), "whoever kills somebody here", WAIT_SECONDS)
                else:
                    die()

    def within(self, step: Step, call: Callable[..., T]) -> Callable[..., T]:
        """The same; what it asks the meta database for is this step."""

        def called(*arguments: Any, **more: Any) -> T:
            self._inside.step = step
            try:
                return call(*arguments, **more)
            finally:
                del self._inside.step

        return called

    def in_transaction(self, call: Callable[..., T]) -> Callable[..., T]:
        """The same, by which a transaction begins, and changes something."""

        def called(*arguments: Any, **more: Any) -> T:
            result = call(*arguments, **more)
            if (step := getattr(self._inside, "step", None)) is not None:
                self.at(step)
            return result

        return called


death = Moments()


def step_of(text: str) -> tuple[Step, int]:
    """From a line for each: a step and its number."""
    step, number = text.split("\n")
    return Step(step), int(number)


def taken(step: StrEnum) -> bool:
    """Whether this is the next step, and no other process takes it."""
    with suppress(FileNotFoundError):
        if step_of(NEXT.read_text())[0] is step:
            NEXT.rename(REACHED)
            return True
    return False


def _prepare() -> None:
    """Put the steps where they are in the program."""
    leases: Any = Leases
    leases._claim = death.then(Step.CLAIMING, leases._claim, lambda claim: claim is not None)
    leases.claim = death.then(Step.CLAIMED, leases.claim, bool)
    leases._announce = death.then(Step.RENEWING, leases._announce)
    leases._require = death.in_transaction(leases._require)
    leases.positions = death.within(Step.BEGINNING, leases.positions)
    leases.save = death.then(Step.SAVED, death.within(Step.SAVING, leases.save))
    leases.save_snapshots = death.then(Step.NOTED, death.within(Step.NOTING, leases.save_snapshots))
    keepers: Any = Keeper
    keepers.wrote = death.first(Step.COMMITTED, keepers.wrote)
    _prepare_sinks()
    subscriptions: Any = Subscriptions
    subscriptions._subscribe = death.within(Step.KEEPING, subscriptions._subscribe)
    keeping: Any = tailrace_server.meta.subscriptions
    keeping.subscription_of = death.in_transaction(keeping.subscription_of)
    subscriptions.subscribe = death.then(Step.KEPT, subscriptions.subscribe)


def _prepare_sinks() -> None:
    runner: Any = tailrace_spark.job.runner
    runner.write_here = death.first(Step.PLANNING, runner.write_here)
    merges: Any = PieceMerges
    merges.merge = death.then(Step.WRITING, merges.merge, bool)
    rows: Any = RowWriter
    rows.insert = death.first(Step.READ, rows.insert)
    states: Any = ScopeState
    states.save = death.first(Step.READ, states.save)
    transactions: Any = KafkaTransactions
    transactions.end = death.first(Step.COMMITTING, transactions.end)
    tables: Any = staging._OpenedTables
    tables._change = death.first(Step.COMMITTING, tables._change)


if __name__ == "__main__":
    death.waits, death.stops = sys.argv[1] == "-", sys.argv[1] == "="
    if death.waits or death.stops:
        del sys.argv[1:3]
    else:
        death.take(Step)
    _prepare()
    run()
