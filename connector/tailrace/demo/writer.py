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

    changes: int | None = 300
    seconds: float | None = None
    per_second: float = 60.0


class Writer:
    """`run` writes; `stop` ends it early. `wait` pauses for seconds, and says True when it is to end."""

    def __init__(self, execute: Callable[[str], object], amount: Amount, clock: Callable[[], float]) -> None:
        self._execute = execute
        self._amount = amount
        self._clock = clock
        self._stop = Event()

    def run(self, seed: int, now_micros: int, wrote: Callable[[], None]) -> None:
        """Write everything; calls `wrote` after each statement. Raises ServiceError when one fails."""
        began = self._clock()
        for count, step in enumerate(self._steps(seed, now_micros, began)):
            ahead = count / self._amount.per_second - (self._clock() - began)
            if ahead > 0 and self._stop.wait(ahead):
                return
            self._execute(step.cql)
            wrote()

    def stop(self) -> None:
        """End after the present statement."""
        self._stop.set()

    def _steps(self, seed: int, now_micros: int, began: float) -> Iterator[Step]:
        script = steps(seed, now_micros)
        if self._amount.seconds is None:
            yield from itertools.islice(script, self._amount.changes)
        else:
            limit = began + self._amount.seconds
            yield from itertools.takewhile(lambda _: self._clock() < limit and not self._stop.is_set(), script)
        yield from last_steps()
