"""`tailrace stream`, killed by itself with -9, its Java too, when its snapshot is at a named step for the nth time.

Run with the name of the step and the number, then the program's own arguments.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

import tailrace_spark.job.checkpoint_files
import tailrace_spark.job.snapshot_run
from tailrace.cli.main import run
from tailrace_spark.job.snapshot_run import SnapshotRun
from tailrace_spark.job.snapshot_writing import ReadRound, RoundWriter, read_round
from tests.integration.dying import Death


class Step(StrEnum):
    """Where it dies, in the order of a round."""

    NOTING = "half of a note is written"
    NOTED = "a round is noted, before it is read"
    READ = "the round is read"
    WRITING = "before the sink has it"
    WRITTEN = "the sink has it, before that is noted"
    DONE = "that it is done is noted"


death = Death()


class DyingOs:
    """`os` for `job.checkpoint_files`: of the note that it syncs, a half is there when the process dies."""

    def fsync(self, number: int) -> None:
        """Sync, or die."""
        name = Path(f"/proc/self/fd/{number}").readlink().name
        if name.startswith(".snapshots-"):
            if death.step is Step.NOTING and death.left <= 1:
                os.ftruncate(number, os.fstat(number).st_size // 2)
                Path(f"/proc/self/fd/{number}").readlink().replace(
                    Path(f"/proc/self/fd/{number}").readlink().with_name(name[1:].removesuffix(".new"))
                )
            death.at(Step.NOTING)
        os.fsync(number)


@contextmanager
def dying_read(*arguments: Any) -> Iterator[ReadRound]:
    death.at(Step.NOTED)
    with read_round(*arguments) as read:
        death.at(Step.READ)
        yield read


if __name__ == "__main__":
    death.take(Step)
    tailrace_spark.job.checkpoint_files.os = DyingOs()  # type: ignore[attr-defined,assignment]  # all that it uses
    tailrace_spark.job.snapshot_run.read_round = dying_read  # type: ignore[assignment,attr-defined]  # the point of it
    # These are the point of it.
    RoundWriter.write = death.first(Step.WRITING, RoundWriter.write)  # type: ignore[method-assign]
    written = death.then(Step.DONE, death.first(Step.WRITTEN, SnapshotRun._written))
    SnapshotRun._written = written  # type: ignore[method-assign]
    run()
