from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from tailrace.demo.script import last_steps
from tailrace.demo.writer import Amount, Writer

LAST = [step.cql for step in last_steps()]


class Source:
    """Takes statements; `first` is set when one has come."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.first = Event()

    def execute(self, statement: str) -> None:
        self.statements.append(statement)
        self.first.set()


def nothing() -> None:
    """Nobody counts."""


def fast(amount: Amount) -> Amount:
    return Amount(changes=amount.changes, seconds=amount.seconds, per_second=1e9)


@pytest.mark.parametrize("changes", [1, 2, 30])
def test_so_many_statements_and_the_last_ones(changes: int) -> None:
    source, count = Source(), list[int]()
    writer = Writer(source.execute, fast(Amount(changes=changes)), lambda: 0.0)
    writer.go()
    writer.run(1, 10**15, lambda: count.append(1))
    assert len(source.statements) == len(count) == changes + len(LAST)
    assert source.statements[-len(LAST) :] == LAST


def test_for_so_long() -> None:
    source, ticks = Source(), iter(range(10**6))
    clock: Callable[[], float] = lambda: float(next(ticks))  # noqa: E731 - as short as it is
    writer = Writer(source.execute, fast(Amount(changes=1, seconds=20.0)), clock)
    writer.go()
    writer.run(1, 10**15, nothing)
    assert 5 < len(source.statements) < 25
    assert source.statements[-len(LAST) :] == LAST


@pytest.mark.parametrize("going", [True, False])
def test_one_statement_until_it_is_told_to_go(going: bool) -> None:
    source = Source()
    writer = Writer(source.execute, fast(Amount(changes=5)), lambda: 0.0)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(writer.run, 1, 10**15, nothing)
        assert source.first.wait(60)
        assert len(source.statements) == 1
        if going:
            writer.go()
        else:
            writer.stop()
        running.result()
    assert len(source.statements) == (5 + len(LAST) if going else 1)
