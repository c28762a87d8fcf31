"""`tailrace stream`, killed by itself with -9, its Java too, when it is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from pyspark import SparkContext

import tailrace_spark.cli.stream
import tailrace_spark.job.checkpoint_files
from tailrace.cli.main import run
from tailrace_spark.job.batch_records import BatchRecords
from tailrace_spark.job.generation_log import BatchGenerations
from tailrace_spark.sinks.sql.piece_merges import PieceMerges
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.tasks.job import TaskRunner


class Step(StrEnum):
    """Where it dies; in the order of a batch. Only batches that have records count."""

    OWNING = "half of stream.json is written"
    NOTING = "half of the batch's note is written"
    NOTED = "the batch's note is written"
    READ = "the records are read"
    PLANNED = "a batch is planned, before its tasks"
    TASKS = "all tasks are done, before the driver commits"
    WRITING = "before the sink's transaction"
    MERGED = "in the sink's transaction, after a piece"
    COMMITTED = "after the sink's commit, before the checkpoint's"
    SWEEPING = "in the sweep's transaction, after a table"
    SWEPT = "after the sweep's commit"


T = TypeVar("T")


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


def _then(step: Step, call: Callable[..., T], counts: Callable[[T], object] = bool) -> Callable[..., T]:
    """The same, and then perhaps the end, where what it gave counts."""

    def called(*arguments: Any, **more: Any) -> T:
        result = call(*arguments, **more)
        if counts(result):
            Death.at(step)
        return result

    return called


def _first(step: Step, call: Callable[..., T]) -> Callable[..., T]:
    """The same, and before it perhaps the end."""

    def called(*arguments: Any, **more: Any) -> T:
        Death.at(step)
        return call(*arguments, **more)

    return called


def _opening(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and the sink that it opens may be where the process ends."""

    def opened(*arguments: Any, **more: Any) -> Any:
        sink = call(*arguments, **more)
        kind = type(sink)
        committed = _then(Step.COMMITTED, kind.write, lambda summary: summary.changes)
        kind.write = _first(Step.WRITING, committed)
        if (tasks := sink.capabilities.tasks) is not None:
            planner: Any = type(tasks)
            planner.plan = _then(Step.PLANNED, planner.plan)
            planner.commit = _then(Step.COMMITTED, planner.commit, lambda summary: summary.changes)
        return sink

    return opened


class DyingOs:
    """`os` for `job.checkpoint_files`: of the file that it syncs, a half is there when the process dies."""

    def fsync(self, number: int) -> None:
        """Sync, or die."""
        name = Path(f"/proc/self/fd/{number}").readlink().name
        step = Step.OWNING if name == ".stream.json.new" else Step.NOTING
        if Death.step is step and Death.left <= 1:
            os.ftruncate(number, os.fstat(number).st_size // 2)
        Death.at(step)
        os.fsync(number)


if __name__ == "__main__":
    Death.step, Death.left = Step(sys.argv.pop(1)), int(sys.argv.pop(1))
    tailrace_spark.job.checkpoint_files.os = DyingOs()  # type: ignore[attr-defined,assignment]  # all that it uses
    # All of these are the point of it.
    BatchGenerations.table = _then(Step.NOTED, BatchGenerations.table)  # type: ignore[method-assign]
    collect = _then(Step.READ, BatchRecords.collect, lambda records: records.num_rows)
    BatchRecords.collect = collect  # type: ignore[method-assign]
    TaskRunner.run = _then(Step.TASKS, TaskRunner.run)  # type: ignore[method-assign]
    PieceMerges.merge = _then(Step.MERGED, PieceMerges.merge)  # type: ignore[method-assign]
    SqlSink._swept = _then(Step.SWEEPING, SqlSink._swept)  # type: ignore[method-assign]
    SqlSink.sweep = _then(Step.SWEPT, SqlSink.sweep)  # type: ignore[method-assign]
    # Read where it is replaced: a name that the command no longer uses fails at once, not by a kill that never comes.
    commands: Any = tailrace_spark.cli.stream
    commands.sink_of = _opening(commands.sink_of)
    run()
