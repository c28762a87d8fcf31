"""The Spark session: the caller's settings, then ours, locked connector jars, a Java; and what Spark logs, quieted.

A session that runs already is taken as it is. Where spark-submit started this process, it has decided about master,
sizes, jars, logs and UI; else a Java is launched here.

The caller is [stream.spark], `spark-defaults.conf`, and where spark-submit started this process, its options. Secrets
are hidden by the caller's words and by ours.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TextIO

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from tailrace_common.cli.logs import logs_json
from tailrace_common.java.find import java_home_for_spark
from tailrace_common.java.jars import Progress, fetch_sets
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.secrets import is_secret_name
from tailrace_spark.jvm import gateway, is_running, jvm_of, launch, process, started_with
from tailrace_spark.sinks.worker_cache import close_idle
from tailrace_spark.source.kafka_options import NAMES, widened

log = logging.getLogger("tailrace_spark")

# What spark-submit tells the Python that it starts.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
_DEFAULT_MASTER: Final = "local[*]"
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
MASTER: Final = "spark.master"
JARS: Final = "spark.jars"
REDACTION: Final = "spark.redaction.regex"
PYTHON: Final = "spark.pyspark.python"

_PACKAGES: Final = "spark.jars.packages"
# For a stream in a session that it makes itself, of whoever started it.
_DEFAULTS: Final = {
    "spark.sql.shuffle.partitions": "4",
    # A batch that is being written is finished, not cut, when the stream is stopped.
    "spark.sql.streaming.stopTimeout": "120000",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # The plan of each batch as text, for a UI that is off unless asked for: as short as Spark has it.
    "spark.sql.ui.explainMode": "simple",
}
# For a Java that is launched here. Where spark-submit does that, they are Spark's own, as people expect it.
_OF_OUR_JAVA: Final = {
    "spark.app.name": "tailrace",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Hadoop's other one starts a `chmod` for each file and for each file's checksum: of a checkpoint, four a batch. The
    # launch itself opens local files, and Hadoop then keeps that class for the process.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
_LOOPBACK: Final = "127.0.0.1"
_LOCAL: Final = {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
_SILENT: Final = logging.CRITICAL + 1
java_log: Final = logging.getLogger("tailrace_spark.java")

# As log4j2-human.properties has them.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z ")


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


def launched(user_settings: Mapping[str, str], jars: Iterable[Path], default_master: str) -> dict[str, str]:
    """What our Java is launched with besides the caller's own settings: what these lack, and `jars`.

    Theirs are those of [stream.spark] over those of spark-defaults.conf. A local Spark listens on loopback alone. A jar
    of ours is left out where theirs have its artifact, in any version.
    """
    master = user_settings.get(MASTER) or default_master
    defaults = {**_OF_OUR_JAVA, **(_LOCAL if master.startswith("local") else {})}
    settings = {MASTER: master} | {name: value for name, value in defaults.items() if name not in user_settings}
    user_jars = user_settings.get(JARS, "")
    named = f"{user_jars},{user_settings.get(_PACKAGES, '')}"
    missing = [str(jar) for jar in jars if _artifact(jar) not in named]
    return settings | {JARS: ",".join([*missing, *filter(None, [user_jars])])}


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """Those options that may stand in a command line, which `ps` shows to everybody."""
    return {name: value for name, value in options.items() if not is_secret_name(name)}


def filled(user_settings: Mapping[str, str]) -> dict[str, str]:
    """Settings of ours to add to the caller's: where they have none; and what hides secrets, beside their own."""
    missing = {name: value for name, value in _DEFAULTS.items() if name not in user_settings}
    return missing | {REDACTION: widened(user_settings.get(REDACTION), NAMES)}


def overruled(options: Mapping[str, str], submitted: Mapping[str, str]) -> list[str]:
    """The names in [stream.spark] that spark-submit has set to something else, in order."""
    return sorted(name for name, value in options.items() if submitted.get(name, value) != value)


def loopback_needed(settings: Mapping[str, str]) -> bool:
    """Whether Java is to take this machine's name for loopback, as a local Spark of ours listens there."""
    return settings.get("spark.driver.bindAddress") == _LOOPBACK


def properties(text: str) -> dict[str, str]:
    """The settings of a spark-defaults.conf, whose names end at a blank, an equals sign or a colon (Java's rules)."""
    settings = {}
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#!":
            end = next((index for index, letter in enumerate(line) if letter in " \t=:"), len(line))
            settings[line[:end]] = line[end:].lstrip(" \t").removeprefix("=").removeprefix(":").strip()
    return settings


def _artifact(jar: Path) -> str:
    """A jar's artifact without its version: `spark-avro_2.13` of spark-avro_2.13-4.1.1.jar."""
    return jar.stem.rpartition("-")[0]


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


def pass_on(descriptor: int, stream: TextIO, *, json_lines: bool) -> None:
    """Write the lines of a descriptor that are of this log to a stream as they are, and log all others; to its end."""
    is_of_log = _is_json if json_lines else _has_time
    with open(descriptor, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if is_of_log(line):
                stream.write(line if line.endswith("\n") else f"{line}\n")
                stream.flush()
            elif line.strip():
                java_log.warning("%s", line.strip())


@contextmanager
def logged_stderr(stream: TextIO, *, json_lines: bool) -> Iterator[int]:
    """A descriptor for a process that is started inside, to write on: `pass_on` has its lines, in a thread."""
    reading, writing = os.pipe()
    passing = partial(pass_on, reading, stream, json_lines=json_lines)
    threading.Thread(target=passing, name="java-stderr", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _has_time(line: str) -> bool:
    return _TIME.match(line) is not None


def _is_json(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
