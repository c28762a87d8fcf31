"""Delta tables of delta-rs as Spark reads them, by its public API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace_spark.sinks.delta.settings import DeltaSinkSettings
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN, WIDE, Topic, deliver
from tests.unit.spark.sinks.delta.stores import DeltaStored, FollowedDelta
from tests.unit.spark.sinks.merging_contract import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _reader(spark: SparkSession) -> SparkSession:
    """A session that reads Delta tables though its Spark was started without Delta's extension."""
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.requiredSparkConfsCheck.enabled", "false")
    return session


@pytest.mark.promise("delta.read-by-spark")
def test_spark_reads_a_history(tmp_path: Path, spark: SparkSession) -> None:
    """Also behind a column that came later."""
    stored, topic = DeltaStored(DeltaSinkSettings(path=str(tmp_path))), Topic()
    deliver(stored, topic.piece(Log(PLAIN).insert((1,), (), 1, v="a")))
    deliver(stored, topic.piece(Log(WIDE).insert((2,), (), 2, v="b", x=1.5)))
    rows = _reader(spark).read.format("delta").load(f"{tmp_path}/shop.plain").orderBy("key.id").collect()
    assert [(row["key"]["id"], row["columns"]["v"], row["columns"]["x"]) for row in rows] == [
        (1, "a", None),
        (2, "b", 1.5),
    ]


@pytest.mark.promise("delta.read-by-spark")
def test_spark_reads_a_table_that_follows(tmp_path: Path, spark: SparkSession) -> None:
    followed, log = FollowedDelta(DeltaSinkSettings(path=str(tmp_path), mode="current", buckets=2)), Log(PLAIN)
    write(followed, log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b"))
    write(followed, log.delete((1,), (), 2), log.insert((3,), (), 2, v="c"))
    rows = _reader(spark).read.format("delta").load(f"{tmp_path}/shop.plain").orderBy("id").collect()
    assert [(row["id"], row["v"]) for row in rows] == [(2, "b"), (3, "c")]
