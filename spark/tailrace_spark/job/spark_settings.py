"""Which of Spark's settings hold: what the caller set, and ours where nobody set anything.

The caller is [stream.spark], `spark-defaults.conf`, and where spark-submit started this process, its options. Secrets
are hidden by the caller's words and by ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from tailrace_common.secrets import is_secret_name
from tailrace_spark.source.redaction import NAMES, widened

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
