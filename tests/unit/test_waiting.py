"""Waiting ends with the answer, or says what did not come."""

from __future__ import annotations

import re

import pytest

from tests.support.clock import ManualClock
from tests.support.waiting import until


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
