"""`tailrace server`, killed by itself with -9 when it is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from tailrace.cli.main import run
from tailrace_server.meta.subscriptions import Subscriptions


class Step(StrEnum):
    """Where it dies."""

    KEPT = "a new subscription is kept, before that is answered"


T = TypeVar("T")


class Death:
    """Counts how often the process was at `step`, and ends it when it is time."""

    step = Step.KEPT
    left = 1

    @classmethod
    def at(cls, step: Step) -> None:
        """The process is at a step."""
        if step is cls.step:
            cls.left -= 1
            if cls.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def _then(step: Step, call: Callable[..., T]) -> Callable[..., T]:
    """The same, and then perhaps the end."""

    def called(*arguments: Any, **more: Any) -> T:
        result = call(*arguments, **more)
        Death.at(step)
        return result

    return called


if __name__ == "__main__":
    Death.step, Death.left = Step(sys.argv.pop(1)), int(sys.argv.pop(1))
    Subscriptions.subscribe = _then(Step.KEPT, Subscriptions.subscribe)  # type: ignore[method-assign]  # the point of it
    run()
