"""`tailrace stream`, killed by itself with -9, its Java too, when it is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import tailrace_spark.cli.stream
import tailrace_spark.job.checkpoint_files
from tailrace.cli.main import run
from tailrace_spark.batch.delivery import WHOLE, MicroBatch
from tailrace_spark.job.batch_writer import BatchWriter
from tailrace_spark.job.generation_log import BatchGenerations
from tailrace_spark.sinks.protocol import BatchWrite, here
from tailrace_spark.sinks.sql.piece_merges import PieceMerges
from tailrace_spark.sinks.sql.sink import SqlSink
from tailrace_spark.tasks.job import TaskRunner
from tests.integration.dying import Death


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


death = Death()


def _opening(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, and the sink that it opens may be where the process ends."""

    def opened(*arguments: Any, **more: Any) -> Any:
        sink = call(*arguments, **more)
        kind, batch_write = type(sink), type(sink).batch_write
        kind.batch_write = lambda sink, batch, *needed: _dying(batch_write(sink, batch, *needed), batch)
        return sink

    return opened


def _dying(plan: BatchWrite, batch: MicroBatch) -> BatchWrite:
    """The writing of a batch, in which the process may end."""
    commit = death.then(Step.COMMITTED, plan.commit, lambda summary: summary.changes)
    if not batch.here:
        death.at(Step.PLANNED)
        return replace(plan, commit=commit)
    write = death.first(Step.WRITING, plan.writer.write)
    return replace(here(lambda pieces: write(WHOLE, pieces).summary), commit=commit)


class DyingOs:
    """`os` for `job.checkpoint_files`: of the file that it syncs, a half is there when the process dies."""

    def fsync(self, number: int) -> None:
        """Sync, or die."""
        name = Path(f"/proc/self/fd/{number}").readlink().name
        step = Step.OWNING if name == ".stream.json.new" else Step.NOTING
        if death.step is step and death.left <= 1:
            os.ftruncate(number, os.fstat(number).st_size // 2)
        death.at(step)
        os.fsync(number)


if __name__ == "__main__":
    death.take(Step)
    tailrace_spark.job.checkpoint_files.os = DyingOs()  # type: ignore[attr-defined,assignment]  # all that it uses
    # All of these are the point of it.
    BatchGenerations.table = death.then(Step.NOTED, BatchGenerations.table, bool)  # type: ignore[method-assign]
    collect = death.then(Step.READ, BatchWriter.collect, lambda records: records.num_rows)
    BatchWriter.collect = collect  # type: ignore[method-assign]
    TaskRunner.run = death.then(Step.TASKS, TaskRunner.run, bool)  # type: ignore[method-assign]
    PieceMerges.merge = death.then(Step.MERGED, PieceMerges.merge, bool)  # type: ignore[method-assign]
    SqlSink._swept = death.then(Step.SWEEPING, SqlSink._swept, bool)  # type: ignore[method-assign]
    SqlSink.sweep = death.then(Step.SWEPT, SqlSink.sweep, bool)  # type: ignore[method-assign]
    # Read where it is replaced: a name that the command no longer uses fails at once, not by a kill that never comes.
    commands: Any = tailrace_spark.cli.stream
    commands.sink_of = _opening(commands.sink_of)
    run()
