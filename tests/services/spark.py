"""A Spark session as the tests use it: local, two threads, the locked jars of streams and sinks, all on loopback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tailrace_common.java.find import java_home_for_spark
from tailrace_common.java.jars import fetch_sets
from tests.jars import fetch_test_sets
from tests.services.class_archive import quick_java


def start_spark(directory: Path) -> SparkSession:
    """A new session whose files are below `directory`. Sets JAVA_HOME, PYSPARK_PYTHON, SPARK_LOCAL_IP here."""
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # else it complains of every machine whose name is a loopback address
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(map(str, (*fetch_sets("spark"), *fetch_test_sets("iceberg", "delta")))),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{quick_java()} -Dderby.system.home={directory}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
    }
    builder = SparkSession.builder.master("local[2]").appName("tailrace-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
