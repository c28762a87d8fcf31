"""Waiting ends with the answer, or says what did not come."""

from __future__ import annotations

import os
import re
from functools import partial

import pytest

from tests.support.clock import ManualClock
from tests.support.waiting import load_per_core, text_of, until


def test_the_first_true_answer_is_given_at_once() -> None:
    clock, answers = ManualClock(), iter([0, [], "", 7, 8])
    assert until(lambda: next(answers), "a number", every=2, clock=clock, pause=clock.wait, load=lambda: 0) == 7
    assert clock.waits == [2, 2, 2]


def test_it_is_asked_once_more_at_the_end_of_the_time() -> None:
    clock = ManualClock()
    assert until(lambda: clock() >= 10, "ten", 10, every=10, clock=clock, pause=clock.wait, load=lambda: 0)


def test_what_did_not_come_is_said() -> None:
    clock = ManualClock()
    said = "a row: not in 3 s; waited 4 s at a load of 1.0 per core; the last answer: None\nthe log's end"
    with pytest.raises(AssertionError, match=f"^{re.escape(said)}$"):
        until(lambda: None, "a row", 3, state=lambda: "the log's end", every=1, clock=clock, pause=clock.wait,
              load=lambda: 0.2)  # fmt: skip


def test_the_highest_load_stretches_the_time() -> None:
    """An idle machine shortens nothing, and a load that has gone is still waited for."""
    clock, loads = ManualClock(), iter([0.1, 5.0])
    with pytest.raises(AssertionError, match=r"not in 3 s; waited 16 s at a load of 5\.0 per core"):
        until(lambda: False, "a row", 3, every=1, clock=clock, pause=clock.wait, load=lambda: next(loads, 0.5))


def test_what_is_over_is_asked_once_more() -> None:
    answers = iter([False, True])
    assert until(lambda: next(answers), "a row", over=lambda: True)
    with pytest.raises(AssertionError, match=r"^a row: not before it was over; .*; the last answer: 0$"):
        until(lambda: 0, "a row", over=lambda: True, load=lambda: 0)


def test_the_load_is_that_of_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 1.0, 0.5))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert load_per_core() == 3


def test_a_condition_is_its_source() -> None:
    def is_there() -> bool:
        return "a row" in "a table"

    assert text_of(is_there) == 'def is_there() -> bool: return "a row" in "a table"'
    assert "is_there" in text_of(partial(is_there))
