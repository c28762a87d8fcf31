"""`tailrace stream`, killed by itself with -9, its Java too, when its snapshot is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyspark import SparkContext

import tailrace_spark.job.checkpoint_files
import tailrace_spark.job.snapshot_run
from tailrace.cli.main import run
from tailrace_spark.job.snapshot_reading import ReadRound, read_round
from tailrace_spark.job.snapshot_run import SnapshotRun
from tailrace_spark.job.snapshot_writing import RoundWriter


class Step(StrEnum):
    """Where it dies, in the order of a round."""

    NOTING = "half of a note is written"
    NOTED = "a round is noted, before it is read"
    READ = "the round is read"
    WRITING = "before the sink has it"
    WRITTEN = "the sink has it, before that is noted"
    DONE = "that it is done is noted"


class Death:
    """Counts how often the process was at `step`, and ends it when it is time."""

    step = Step.READ
    left = 1

    @classmethod
    def at(cls, step: Step) -> None:
        """The process is at a step."""
        if step is cls.step:
            cls.left -= 1
            if cls.left <= 0:
                die()


def die() -> None:
    """kill -9 of the Java, then of this process."""
    gateway = SparkContext._gateway
    if gateway is not None:
        with suppress(ProcessLookupError):
            os.killpg(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


class DyingOs:
    """`os` for `job.checkpoint_files`: of the note that it syncs, a half is there when the process dies."""

    def fsync(self, number: int) -> None:
        """Sync, or die."""
        name = Path(f"/proc/self/fd/{number}").readlink().name
        if name.startswith(".snapshots-"):
            if Death.step is Step.NOTING and Death.left <= 1:
                os.ftruncate(number, os.fstat(number).st_size // 2)
                Path(f"/proc/self/fd/{number}").readlink().replace(
                    Path(f"/proc/self/fd/{number}").readlink().with_name(name[1:].removesuffix(".new"))
                )
            Death.at(Step.NOTING)
        os.fsync(number)


@contextmanager
def dying_read(*arguments: Any) -> Iterator[ReadRound]:
    Death.at(Step.NOTED)
    with read_round(*arguments) as read:
        Death.at(Step.READ)
        yield read


if __name__ == "__main__":
    Death.step, Death.left = Step(sys.argv.pop(1)), int(sys.argv.pop(1))
    tailrace_spark.job.checkpoint_files.os = DyingOs()  # type: ignore[attr-defined,assignment]  # all that it uses
    tailrace_spark.job.snapshot_run.read_round = dying_read  # type: ignore[assignment,attr-defined]  # the point of it
    write, written = RoundWriter.write, SnapshotRun._written

    def dying_write(self: RoundWriter, *arguments: Any) -> Any:
        Death.at(Step.WRITING)
        return write(self, *arguments)

    def dying_written(self: SnapshotRun, *arguments: Any) -> None:
        Death.at(Step.WRITTEN)
        written(self, *arguments)
        Death.at(Step.DONE)

    RoundWriter.write = dying_write  # type: ignore[assignment,method-assign]  # the point of it
    SnapshotRun._written = dying_written  # type: ignore[assignment,method-assign]  # the point of it
    run()
