"""A round of a snapshot whose records are lost before they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tailrace_spark.job.snapshot_writing import read_round
from tailrace_spark.snapshot.stream_rows import SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.promise("snapshots.equal")
def test_records_that_are_lost_with_an_executor_are_read_again_or_the_job_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A slot that could not be read a second time was left out, and its round was done."""
    away = tmp_path / "away"

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            row: dict[str, object] = {"op": "read", "value": b"v", "slot": 0}
            yield pa.RecordBatch.from_pylist([row], SCHEMA)
            if away.exists():
                yield pa.RecordBatch.from_pylist([{"slot": 0, "problem": "the node is away", "final": False}], SCHEMA)

    reader: Any = SimpleNamespace(tasks=[[0]], rows=rows)
    with read_round(spark, reader) as read:
        spark.catalog.clearCache()  # as an executor's end takes what it kept
        assert read.rows == len(read.frame.collect()) == 1
        away.touch()
        with pytest.raises(PySparkException, match="the node is away"):
            read.frame.collect()
