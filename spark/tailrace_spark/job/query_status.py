"""The status and progress of a streaming query, where Spark's users look: `query.status` and Spark's UI."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tailrace_spark.jvm import execution_of
from tailrace_spark.streams.assign import LATE_SQL

PROCESSING: Final = "Processing new data"
"""Spark's own words while a batch is being processed."""


def show_status(query: StreamingQuery | None, words: str) -> None:
    """Make these the message of `query.status`, until Spark has another.

    Where Spark's inner interface for it is missing (it is of 4.1), nothing is shown; the log has the words, too.
    """
    if query is None:  # its first batch can be taken up before `start` has returned
        return
    try:
        execution_of(query).updateStatusMessage(words)
    except (Py4JError, TypeError):
        return


def observed(heads: DataFrame) -> DataFrame:
    """The same stream of `with_head`, whose progress has the metrics `tailrace` of each batch.

    `records`, `undecodable` of them, `late` ones, and `written`: the newest write time, in microseconds.
    """
    return heads.observe(
        "tailrace",
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("op").isNull()).alias("undecodable"),
        F.count_if(F.expr(LATE_SQL)).alias("late"),
        F.max("written").alias("written"),
    )


def last_progress(query: StreamingQuery) -> Mapping[str, Any] | None:
    """The progress of the query's last batch, while it runs, as Spark's JSON has it: PySpark makes texts of offsets."""
    try:
        last = query.lastProgress
    except Py4JError:
        return None  # Spark has ended
    progress: Mapping[str, Any] | None = None if last is None else json.loads(last.json)
    return progress
