"""The Spark session: the locked connector jars, a Java that Spark starts with, this interpreter, UTC."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from tailrace_common.cli.logs import logs_json
from tailrace_common.java.find import java_home_for_spark
from tailrace_common.java.jars import Progress, fetch_sets
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import is_secret_name
from tailrace_spark.job.java_lines import json_stderr
from tailrace_spark.job.spark_quiet import silence_py4j

log = logging.getLogger("tailrace_spark")

_DEFAULTS: Final = {
    "spark.app.name": "tailrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    # A batch that is being written is finished, not cut, when the stream is stopped.
    "spark.sql.streaming.stopTimeout": "120000",
    # What it shows of a query has the options of its source in it: of Kafka's, passwords and keys.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # The plan of each batch as text, for a UI that is off unless asked for: as short as Spark has it.
    "spark.sql.ui.explainMode": "simple",
    # Hadoop's other one starts a `chmod` for each file and for each file's checksum: of a checkpoint, four a batch.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOCAL: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def spark_session(settings: Mapping[str, Scalar] | None = None, progress: Progress | None = None) -> SparkSession:
    """The session of this process, made with Spark's `settings` ([stream.spark]) over ours if there is none yet.

    Its Java is in a session of its own. So a signal to our process group, as terminals send it, reaches Python alone,
    which ends the stream in order. The Java ends when this process does. JAVA_HOME and PYSPARK_PYTHON are set in this
    process, the latter unless Spark's own settings name a Python. Raises JarError or SettingsError when jars or a Java
    cannot be had.
    """
    options = {name: str(value) for name, value in (settings or {}).items()}
    master = options.setdefault("spark.master", os.environ.get("SPARK_MASTER", "local[*]"))
    if master.startswith("local"):
        # Else Spark complains of every machine whose name is a loopback address, and listens where others reach it.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        options = {**_LOCAL, **options}
    os.environ["JAVA_HOME"] = str(java_home_for_spark())
    # PySpark reads the executors' Python from the environment alone, unless spark-submit starts it.
    os.environ["PYSPARK_PYTHON"] = options.get("spark.pyspark.python", sys.executable)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    options[_JAVA_OPTIONS] = _with_logging(options.get(_JAVA_OPTIONS, ""))
    jars = [str(jar) for jar in fetch_sets("spark", progress=progress)]
    user_jars = options.pop("spark.jars", "")
    fixed = {"spark.jars": ",".join([*jars, user_jars] if user_jars else jars), "spark.sql.session.timeZone": "UTC"}
    conf = SparkConf(loadDefaults=False).setAll([*{**_DEFAULTS, **options, **fixed}.items()])
    if SparkContext._gateway is None:  # noqa: SLF001 - PySpark has a Java that runs already nowhere else
        # What Java is launched with stands in its command line, which `ps` shows to everybody; the rest follows it.
        launch_conf = SparkConf(loadDefaults=False).setAll(
            [entry for entry in conf.getAll() if not is_secret_name(entry[0])]
        )
        SparkContext(conf=conf, gateway=_launched(launch_conf))
    session: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    if not log.isEnabledFor(logging.DEBUG):
        silence_py4j()
    return session


def _launched(conf: SparkConf) -> Any:
    """PySpark's way to a Java of our own."""
    process_options: dict[str, Any] = {"start_new_session": True}
    with json_stderr(sys.stderr) if logs_json() else nullcontext() as stderr:
        return launch_gateway(conf, {**process_options, "stderr": stderr})  # type: ignore[no-untyped-call]  # it has no types


def _with_logging(options: str) -> str:
    """Options of the driver's Java, with a configuration of its log unless they name one.

    At `debug` the lines for people stay Spark's own, which have stack traces.
    """
    json_lines = logs_json()
    if "log4j" in options or (not json_lines and log.isEnabledFor(logging.DEBUG)):
        return options
    configuration = Path(__file__).with_name(f"log4j2-{'json' if json_lines else 'human'}.properties")
    return f"{options} -Dlog4j2.configurationFile={configuration.as_uri()}".strip()


class SparkOnce:
    """A Spark session that is made when it is first asked for, and ends with a `with`."""

    def __init__(self, settings: Mapping[str, Scalar]) -> None:
        """As for `spark_session`."""
        self._settings = settings
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        """The session. Raises JarError or SettingsError when jars or a Java cannot be had."""
        if self._session is None:
            self._session = spark_session(self._settings)
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            with suppress(Py4JError, ConnectionError):  # its Java has ended, which was said
                self._session.stop()
