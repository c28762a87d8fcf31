"""What Spark's users see of a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def status_of(spark: SparkSession) -> str:
    """The message of the running query's status; nothing while there is none."""
    return "".join(str(query.status["message"]) for query in spark.streams.active)
