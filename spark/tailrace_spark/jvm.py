"""What PySpark keeps to itself of its driver's Java, and what public API would do instead: nothing else reaches in.

Only sessions that this process started have a Java here: Spark Connect has none, and `tailrace_spark.changes` asks for
none.

- job/session.py sets secrets once Java runs, which no command line shows. A builder would have to take settings later.
- job/progress.py shows what a batch waits for. No public call sets the status of a query.
- job/endings.py tells how Java ended, and waits until Spark interrupts a batch. A batch has no way of its own to end.
- job/batch_records.py takes a share of the driver's memory, whoever has set it.
- job/checkpoint_files.py keeps files beside a checkpoint, at any URL. Python has no client for Hadoop's file systems.
- job/session.py also sets the level of one logger. `setLogLevel` is for all at once.
- source/kafka.py matches topics as `subscribePattern` does. Java's regular expressions are not Python's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery


def jvm_of(spark: SparkSession) -> Any:
    """Java's packages, by py4j."""
    return spark.sparkContext._jvm  # noqa: SLF001


def hadoop_configuration(spark: SparkSession) -> Any:
    """That of Spark's file systems, with fs.* of its settings."""
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001


def is_running() -> bool:
    """Whether this process has a SparkContext: to ask for a session would make one."""
    return SparkContext._active_spark_context is not None  # noqa: SLF001


def gateway() -> Any:
    """The connection with a Java that this process has, or is started by; None without one."""
    return SparkContext._gateway  # noqa: SLF001


def launch(conf: SparkConf | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """The connection with a Java that is launched with these settings and `options` of Popen, or that spark-submit
    runs.
    """
    return launch_gateway(conf, options)  # type: ignore[no-untyped-call]  # it has no types


def started_with(java: Any) -> SparkConf:
    """All settings that the Java of a connection was started with."""
    return SparkConf(_jvm=java.jvm)


def execution_of(query: StreamingQuery) -> Any:
    """What Java runs of a query now."""
    return query._jsq.streamingQuery().getLatestExecutionContext()  # noqa: SLF001


def process() -> Any:
    """The Java that was launched here, a Popen; None where there is none."""
    return getattr(gateway(), "proc", None)
