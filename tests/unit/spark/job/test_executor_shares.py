"""The records of a batch as executors write them, without Spark: the stream's id, partitions, missing packages."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.errors import PythonException

from tailrace_spark.batch.micro_batch import partition_counts
from tailrace_spark.job.checkpoint_files import MemoryFiles
from tailrace_spark.job.executor_shares import ExecutorShares, stream_id
from tailrace_spark.job.notes import decode_note
from tailrace_spark.job.runner import MissingPackagesError
from tailrace_spark.tasks.job import TaskRunner
from tests.unit.spark.sinks.planned import PlannedWriter


class Failing:
    """As TaskRunner, without Spark."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def run(self, *_: object) -> Any:
        raise self._error


def test_the_streams_id_is_in_the_checkpoint_and_stays() -> None:
    files = MemoryFiles()
    stream = stream_id(files)
    assert decode_note(files.read("tasks.json") or "", "tasks.json")["stream"] == stream
    assert stream_id(files) == stream != stream_id(MemoryFiles())


def test_spark_plans_offsets_for_all_partitions_of_a_topic() -> None:
    ends = {("t.ks.t", 0): 5, ("t.ks.t", 1): 7, ("t.ks.other", 4): 1}
    assert partition_counts(ends) == {"t.ks.t": 2, "t.ks.other": 5}


@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        ("... ModuleNotFoundError: No module named 'fastavro' ...", MissingPackagesError,
         r"no module fastavro: bring it by `tailrace stream --archive"),
        ("what else", PythonException, "what else"),
    ],
)  # fmt: skip
def test_packages_that_executors_lack_are_named_with_the_remedy(words: str, error: type[Exception], said: str) -> None:
    tasks = cast(TaskRunner, Failing(PythonException(words)))
    shares = ExecutorShares(tasks, cast(Any, "the records"), cast(Any, "the generations"), {}, {})
    with pytest.raises(error, match=said):
        shares.run(PlannedWriter(0), frozenset())
