"""`tailrace server` that kills something with -9 whenever it is at a named step: itself with its Java, or a database.

Run with words of STEP=FILE, then the program's own arguments. They are carried out one after the other. The file has
the id of the process to be killed; without a name it is this one, which then ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any

from tailrace.cli.main import run
from tailrace_server.meta.leases import Leases
from tailrace_server.worker.run import StreamRun
from tailrace_spark.job.snapshot_writing import RoundWriter
from tests.integration.snapshot.dying_snapshot import die


class Step(StrEnum):
    """Where it kills, in the order of a subscription's life."""

    BEGINNING = "claimed, before its offsets are kept"
    BEGUN = "its offsets are kept, before the stream begins"
    NOTING = "before a range is noted"
    NOTED = "a range is noted, before it is read"
    WRITING = "before the sink has a range"
    WRITTEN = "the sink has a range, before that is noted"
    BATCH = "the sink has a batch, before its offsets are kept"
    KEPT = "the offsets of a batch are kept"


class Kills:
    """What is still to be killed, and where."""

    lock = threading.Lock()
    left: list[tuple[Step, str]] = []  # noqa: RUF012 - the process has one list

    @classmethod
    def at(cls, step: Step) -> None:
        """The process is at a step."""
        with cls.lock:
            if not cls.left or cls.left[0][0] is not step:
                return
            file = cls.left[0][1]
            if not file:
                die()
            with suppress(ProcessLookupError):  # it is being started again: the next time then
                os.kill(int(Path(file).read_text()), signal.SIGKILL)
                cls.left.pop(0)


def around(kind: type[Any], name: str, before: Step, after: Step) -> None:
    """Have a method of a class kill before its work, and after it."""
    method: Callable[..., Any] = getattr(kind, name)

    @wraps(method)
    def killing(*arguments: Any, **options: Any) -> Any:
        Kills.at(before)
        result = method(*arguments, **options)
        Kills.at(after)
        return result

    setattr(kind, name, killing)


if __name__ == "__main__":
    while "=" in sys.argv[1]:
        step, _, file = sys.argv.pop(1).partition("=")
        Kills.left.append((Step(step), file))
    around(StreamRun, "_begin", Step.BEGINNING, Step.BEGUN)
    around(Leases, "save_snapshots", Step.NOTING, Step.NOTED)
    around(RoundWriter, "write", Step.WRITING, Step.WRITTEN)
    around(StreamRun, "_wrote", Step.BATCH, Step.KEPT)
    run()
