"""The Spark session: the locked connector jars, a Java that Spark starts with, this interpreter, UTC."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from tailrace_common.jars import Progress, fetch_sets
from tailrace_common.java import java_home_for_spark
from tailrace_common.passthrough import Scalar

_DEFAULTS: Final = {
    "spark.app.name": "tailrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # A batch that is being written is finished, not cut, when the stream is stopped.
    "spark.sql.streaming.stopTimeout": "120000",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(settings: Mapping[str, Scalar] | None = None, progress: Progress | None = None) -> SparkSession:
    """The session of this process, made with Spark's `settings` ([stream.spark]) over ours if there is none yet.

    Sets JAVA_HOME and PYSPARK_PYTHON in this process unless Spark's own settings name a Python. Raises JarError or
    SettingsError when jars or a Java cannot be had.
    """
    wanted = {name: str(value) for name, value in (settings or {}).items()}
    master = wanted.setdefault("spark.master", os.environ.get("SPARK_MASTER", "local[*]"))
    if master.startswith("local"):
        # Else Spark complains of every machine whose name is a loopback address, and listens where others reach it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        wanted = {**_LOCAL, **wanted}
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    if "spark.pyspark.python" not in wanted:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    jars = [str(jar) for jar in fetch_sets("spark", progress=progress)]
    more = wanted.pop("spark.jars", "")
    builder: SparkSession.Builder = SparkSession.builder
    fixed = {"spark.jars": ",".join([*jars, more] if more else jars), "spark.sql.session.timeZone": "UTC"}
    for name, value in {**_DEFAULTS, **wanted, **fixed}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session
