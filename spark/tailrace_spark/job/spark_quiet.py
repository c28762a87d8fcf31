"""Silences log lines of Spark and py4j about errors that the stream itself causes, or logs in words of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from tailrace_spark.jvm import jvm_of

_SILENT: Final = logging.CRITICAL + 1


def silence_py4j() -> None:
    """Let py4j log nothing in this process: it logs Java's errors with a traceback before it raises them."""
    logging.getLogger("py4j").setLevel(_SILENT)
    logging.getLogger().addFilter(_is_not_py4j)


@contextmanager
def quiet_stop(spark: SparkSession) -> Iterator[None]:
    """While inside, a query can be stopped without tracebacks of the batch and the jobs that this interrupts.

    The level of Spark's scheduler stays raised. It logs the missing jobs from a thread of its own, at any time after
    the query has stopped.
    """
    context = spark.sparkContext
    log4j = jvm_of(spark).org.apache.logging.log4j
    of_spark = str(log4j.LogManager.getRootLogger().getLevel())
    context.setLogLevel("ERROR")
    log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.DAGScheduler", log4j.Level.ERROR)
    logger = logging.getLogger("py4j")
    level = logger.level
    logger.setLevel(_SILENT)
    try:
        yield
    finally:
        context.setLogLevel(of_spark)
        logger.setLevel(level)


def quiet_pools(spark: SparkSession) -> None:
    """Let Spark say nothing of scheduler pools that nobody has configured: their defaults are what is wanted."""
    log4j = jvm_of(spark).org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.scheduler.FairSchedulableBuilder", log4j.Level.ERROR)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    """False for what py4j logs by the root logger, which its own logger's level does not reach."""
    return "py4j" not in record.pathname
