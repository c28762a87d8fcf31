"""Runs the script against Cassandra, one statement after the other, in a thread of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Event

from tailrace.demo.script import Step, last_steps, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """How much is written: `changes` statements, or for `seconds`; then one last row to each table.

    `per_second` at most, so that it can be watched.
    """

    changes: int = 300
    seconds: float | None = None
    per_second: float = 60.0


class Writer:
    """`run` writes the first statement, waits for `go`, writes the others; `stop` ends it early.

    Spark takes its time for its first batch: the others are to be seen arriving one after the other.
    """

    def __init__(self, execute: Callable[[str], object], amount: Amount, clock: Callable[[], float]) -> None:
        self._execute = execute
        self._amount = amount
        self._clock = clock
        self._go = Event()
        self._stop = Event()

    def run(self, seed: int, now_micros: int, wrote: Callable[[], None]) -> None:
        """Write everything; calls `wrote` after each statement. Raises ServiceError when one fails."""
        script = steps(seed, now_micros)
        self._write(next(script), wrote)
        self._go.wait()
        began = self._clock()
        for count, step in enumerate(itertools.chain(self._limited(script, began), last_steps())):
            lead = count / self._amount.per_second - (self._clock() - began)
            if self._stop.wait(max(0.0, lead)):
                return
            self._write(step, wrote)

    def go(self) -> None:
        """Write on: the first change has arrived."""
        self._go.set()

    def stop(self) -> None:
        """End after the present statement."""
        self._stop.set()
        self._go.set()

    def _write(self, step: Step, wrote: Callable[[], None]) -> None:
        self._execute(step.cql)
        wrote()

    def _limited(self, script: Iterator[Step], began: float) -> Iterator[Step]:
        if self._amount.seconds is None:
            return itertools.islice(script, max(0, self._amount.changes - 1))
        limit = began + self._amount.seconds
        return itertools.takewhile(lambda _: self._clock() < limit, script)
