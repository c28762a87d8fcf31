"""A job of tasks that a command of ours plans itself, each with work of its own, on Spark's executors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.job.endings import reason

Work = TypeVar("Work")
Result = TypeVar("Result")
_SPECULATION: Final = "spark.speculation"


def run_tasks(
    spark: SparkSession, work: Sequence[Work], task: Callable[[Iterator[Work]], Iterator[Result]]
) -> list[Result]:
    """What `task` gives for each piece of work, a task of Spark's each. Raises ServiceError where the job fails.

    `task` is pickled, with the settings in it; nothing of it is shown. Raises SettingsError where Spark
    speculates: it would read twice, beyond the limits.
    """
    if not work:
        return []
    if spark.sparkContext.getConf().get(_SPECULATION, "false") == "true":
        raise SettingsError(f"{_SPECULATION} is true: Spark would read ranges twice at once. Set it to false")
    try:
        # PySpark calls iterators Iterable.
        results = spark.sparkContext.parallelize(work, len(work)).mapPartitions(lambda items: task(iter(items)))
        return list(results.collect())
    except (Py4JError, PySparkException) as error:
        raise ServiceError(f"Spark's job failed: {reason(error)}; run the same command again") from error
