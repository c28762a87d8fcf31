"""The Spark session: the caller's settings first, the locked connector jars, a Java that Spark starts with.

A session that runs already is taken as it is. Where spark-submit started this process, it has decided about master,
sizes, jars, logs and UI; else a Java is launched here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tailrace_common.cli.logs import logs_json
from tailrace_common.java.find import java_home_for_spark
from tailrace_common.java.jars import Progress, fetch_sets
from tailrace_common.properties.passthrough import Scalar
from tailrace_spark.job.java_lines import logged_stderr
from tailrace_spark.job.spark_quiet import silence_py4j
from tailrace_spark.job.spark_settings import (
    JAVA_OPTIONS,
    PYTHON,
    filled,
    launched,
    loopback_needed,
    overruled,
    properties,
    shown,
)
from tailrace_spark.jvm import gateway, is_running, launch, process, started_with
from tailrace_spark.sinks.worker_cache import close_idle

log = logging.getLogger("tailrace_spark")

# What spark-submit tells the Python that it starts.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_DEFAULT_MASTER: Final = "local[*]"


def spark_session(settings: Mapping[str, Scalar] | None = None, progress: Progress | None = None) -> SparkSession:
    """The session of this process: one that runs already, else a new one.

    A running one is as its maker set it: `settings` ([stream.spark]) do not count. In a new one they win over
    spark-defaults.conf, but what spark-submit set holds. Ours hold where nobody set anything; docs/spark.md has them.

    A Java that is launched here is in a session of its own. So a signal to our process group, as terminals send it,
    reaches Python alone, which ends the stream in order. The Java ends when this process does. The environment of this
    process stays as it is. Raises JarError or SettingsError when jars or a Java cannot be had.
    """
    if is_running():
        return SparkSession.builder.getOrCreate()
    options = {name: str(value) for name, value in (settings or {}).items()}
    submitted = _SUBMITTED in os.environ or gateway() is not None
    java = gateway() or (launch() if submitted else _launched(options, progress))
    conf = started_with(java)
    started = dict(conf.getAll())
    if submitted and (names := overruled(options, started)):
        log.warning("spark-submit has set %s: its value in [stream.spark] is ignored", ", ".join(names))
    settled = {**options, **started} if submitted else {**started, **options}
    conf.setAll([*{**settled, **filled(settled)}.items()])
    # PySpark reads the executors' Python from the environment alone, unless spark-submit starts it.
    python = settled.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    with _environment(PYSPARK_PYTHON=python):
        SparkContext(conf=conf, gateway=java)
    session: SparkSession = SparkSession.builder.getOrCreate()
    if not submitted and _our_log(settled, os.environ):
        session.sparkContext.setLogLevel("WARN")
    return session


def spark_jars(progress: Progress | None = None) -> tuple[Path, ...]:
    """The connector's jars, fetched where they are missing. Raises JarError or SettingsError."""
    return fetch_sets("spark", progress=progress)


def _launched(options: Mapping[str, str], progress: Progress | None) -> Any:
    """PySpark's way to a Java of our own. The secrets among `options` follow when it runs."""
    settled = {**_defaults_file(os.environ), **options}
    added = launched(settled, spark_jars(progress), os.environ.get("SPARK_MASTER", _DEFAULT_MASTER))
    environment = {"JAVA_HOME": str(java_home_for_spark())}
    if loopback_needed({**settled, **added}):
        # Else Spark complains of every machine whose name is a loopback address, and listens where others reach it.
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    if (configuration := _log_configuration(settled)) is not None:
        # In front of `spark.driver.extraJavaOptions`, whoever set them.
        option = f"-Dlog4j2.configurationFile={configuration.as_uri()}"
        environment["SPARK_SUBMIT_OPTS"] = f"{option} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    conf = SparkConf(loadDefaults=False).setAll([*shown({**options, **added}).items()])
    json_lines = logs_json()
    # Who has configured Java's log, or reads its stack traces, has all lines as they are.
    ours = json_lines or configuration is not None
    with (
        _environment(**environment),
        logged_stderr(sys.stderr, json_lines=json_lines) if ours else nullcontext() as stderr,
    ):
        return launch(conf, {"start_new_session": True, "stderr": stderr})


def _defaults_file(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of spark-defaults.conf, where Spark itself looks for it."""
    folder = _conf_folder(environ)
    file = None if folder is None else folder / "spark-defaults.conf"
    return properties(file.read_text("utf-8")) if file is not None and file.is_file() else {}


def _conf_folder(environ: Mapping[str, str]) -> Path | None:
    if named := environ.get("SPARK_CONF_DIR"):
        return Path(named)
    if home := environ.get("SPARK_HOME"):
        return Path(home, "conf")
    package = find_spec("pyspark")
    return None if package is None or package.origin is None else Path(package.origin).with_name("conf")


def _our_log(user_settings: Mapping[str, str], environ: Mapping[str, str]) -> bool:
    """Whether Java logs as we have it: nobody has configured its log otherwise."""
    folder = _conf_folder(environ)
    files = [] if folder is None else [*folder.glob("log4j2.*"), *folder.glob("log4j2-test.*")]
    return not files and "log4j" not in user_settings.get(JAVA_OPTIONS, "") and "spark.log.level" not in user_settings


def _log_configuration(user_settings: Mapping[str, str]) -> Path | None:
    """The configuration of Java's log; None where the caller has one.

    At `debug` the lines for people stay Spark's own, which have stack traces.
    """
    json_lines = logs_json()
    if not _our_log(user_settings, os.environ) or (not json_lines and log.isEnabledFor(logging.DEBUG)):
        return None
    return Path(__file__).with_name(f"log4j2-{'json' if json_lines else 'human'}.properties")


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """While inside, these variables of this process; afterwards what was before."""
    previous = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class SparkOnce:
    """A Spark session for a command of ours, made when it is first asked for, and ended with a `with`.

    So is what the command has open for later tasks.

    A session that ran already stays.
    """

    def __init__(self, settings: Mapping[str, Scalar]) -> None:
        """As for `spark_session`."""
        self._settings = settings
        self._session: SparkSession | None = None
        self._was_running = False

    def __call__(self) -> SparkSession:
        """The session. Raises JarError or SettingsError when jars or a Java cannot be had."""
        if self._session is None:
            self._was_running = SparkSession.getActiveSession() is not None
            self._session = spark_session(self._settings)
            if not log.isEnabledFor(logging.DEBUG):
                silence_py4j()
        return self._session

    @property
    def ended(self) -> bool:
        """Whether a Java that was launched here has ended, so that nothing more can be done with the session."""
        java = process()
        return java is not None and java.poll() is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        close_idle()  # what rounds of snapshots have opened in this process
        if self._session is not None and not self._was_running:
            with suppress(Py4JError, ConnectionError):  # its Java has ended, which was said
                self._session.stop()
