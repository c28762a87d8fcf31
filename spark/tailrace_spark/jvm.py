"""What PySpark keeps to itself of its driver's Java, and what public API would do instead: nothing else reaches in.

Only sessions that this process started have a Java here: Spark Connect has none, and `tailrace_spark.changes` asks for
none.

- job/session.py sets secrets once Java runs, which no command line shows. A builder would have to take settings later.
- job/endings.py tells how Java ended, and waits until Spark interrupts a batch. A batch has no way of its own to end.
- job/parts.py takes a share of the driver's memory, whoever has set it.
- job/checkpoint_files.py keeps files beside a checkpoint, at any URL. Python has no client for Hadoop's file systems.
- job/spark_quiet.py sets the level of one logger. `setLogLevel` is for all at once.
- source/kafka.py matches topics as `subscribePattern` does. Java's regular expressions are not Python's.
"""

from __future__ import annotations

from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession


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


def process() -> Any:
    """The Java that was launched here, a Popen; None where there is none."""
    return getattr(gateway(), "proc", None)
