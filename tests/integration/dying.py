"""What programs of the tests share that run a command of tailrace's and die by -9 at a named step of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


def die() -> None:
    """kill -9 of the Java, where this process has Spark, then of this process."""
    spark: Any = sys.modules.get("pyspark")
    if spark is not None and (gateway := spark.SparkContext._gateway) is not None:
        with suppress(ProcessLookupError):
            os.killpg(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class Death:
    """Counts how often the process was at `step`, and ends it when it is time."""

    def __init__(self) -> None:
        self.step: StrEnum | None = None
        self.left = 1
        self.flush: Callable[[], object] = lambda: None
        """What comes right before the end."""

    def take(self, steps: type[StrEnum]) -> None:
        """Take the step and the number from the arguments, whose others are the command's."""
        self.step, self.left = steps(sys.argv.pop(1)), int(sys.argv.pop(1))

    def at(self, step: StrEnum) -> None:
        """The process is at a step."""
        if step is self.step:
            self.left -= 1
            if self.left <= 0:
                self.flush()
                die()

    def then(
        self, step: StrEnum, call: Callable[..., T], counts: Callable[[T], object] = lambda _: True
    ) -> Callable[..., T]:
        """The same, and then perhaps the end, where what it gave counts."""

        def called(*arguments: Any, **more: Any) -> T:
            result = call(*arguments, **more)
            if counts(result):
                self.at(step)
            return result

        return called

    def first(self, step: StrEnum, call: Callable[..., T]) -> Callable[..., T]:
        """The same, and before it perhaps the end."""

        def called(*arguments: Any, **more: Any) -> T:
            self.at(step)
            return call(*arguments, **more)

        return called
