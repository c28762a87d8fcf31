"""Waiting for what others do, as long as it may take on a machine that has more to do."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def load_per_core() -> float:
    """Processes that ran or waited to run in the last minute, for each core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def until(
    condition: Callable[[], T | None],
    what: str,
    seconds: float = 60,
    *,
    over: Callable[[], bool] = lambda: False,
    state: Callable[[], object] = lambda: "",
    every: float = 0.05,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,  # noqa: TID251 - the one place
    load: Callable[[], float] = load_per_core,
) -> T:
    """What the condition gives, once that is true; it is asked every so many seconds.

    Where it does not come in `seconds`, times the highest load per core meanwhile, or not before it is `over`, this
    fails. It says `what` was waited for, the last answer, and what `state` gives then.
    """
    __tracebackhide__ = True
    began, factor = clock(), 1.0
    while not (answer := condition()):
        factor = max(factor, load())
        waited, is_over = clock() - began, over()
        if is_over and (answer := condition()):
            break
        if is_over or waited > seconds * factor:
            limit = "before it was over" if is_over else f"in {seconds:g} s"
            said = f"{what}: not {limit}; waited {waited:.0f} s at a load of {factor:.1f} per core"
            raise AssertionError(f"{said}; the last answer: {answer!r}\n{state()}".rstrip())
        pause(every)

    return answer


def text_of(condition: Callable[..., object]) -> str:
    """What the source says of a condition, for those who wait for whatever they are told to."""
    return " ".join(inspect.getsource(condition).split()) if inspect.isfunction(condition) else repr(condition)


def let_pass(seconds: float, what: str) -> None:
    """Wait so long, where others have a clock of their own that nobody can look at: `what` is what has passed then."""
    over = time.monotonic() + seconds
    until(lambda: time.monotonic() >= over, what, seconds + 60)
