"""An archive of the classes that a Spark driver loads, for Java's next starts: these take half of the CPU then."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pyspark

from tailrace_common.java.find import find_java, java_home_for_spark
from tailrace_common.java.jars import cache_directory

_KEPT: Final = 4
"""Archives of so many environments, of 150 MB each."""
_QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of a process that lives for a minute, the optimising compiler takes a third of the CPU."""
_QUIET: Final = "-Xlog:disable -Xlog:all=warning:stderr"
"""Java would say on stdout, among the lines that a command prints, that an archive is gone: others keep four, too."""

_SESSION: Final = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name in ("spark.driver.host", "spark.driver.bindAddress"):
    builder = builder.config(name, "127.0.0.1")
spark = builder.config("spark.driver.extraJavaOptions", sys.argv[1]).getOrCreate()
frame = spark.readStream.format("rate").load().selectExpr("value", "cast(value as string) as text")
stream = frame.writeStream.foreachBatch(lambda batch, _: batch.groupBy("text").count().toArrow())
query = stream.option("checkpointLocation", sys.argv[2]).start()
query.processAllAvailable()
query.stop()
spark.stop()
"""


@cache
def quick_java() -> str:
    """Java's options for a driver that starts soon; the first call of an environment makes the archive, in a minute.

    A Java that cannot use the archive goes without. So does one that lacks the archive which ours stands on, as that of
    PyPI.
    """
    java = find_java()
    if not Path(java.home, "lib", "server", "classes.jsa").is_file():
        return _QUICK
    folder = cache_directory() / "test-classes"
    folder.mkdir(parents=True, exist_ok=True)
    parts = f"{java.home} {java.version} {pyspark.__version__} {pyspark.__file__}"
    archive = folder / f"spark-{hashlib.sha256(parts.encode()).hexdigest()[:16]}.jsa"
    with (folder / "lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of a run ask for it at once
        if not archive.is_file():
            _record(archive)
    return f"{_QUICK} {_QUIET} -XX:SharedArchiveFile={archive}"


def quick_java_lines() -> str:
    """The lines of [stream.spark] for it; an executor has other classes, and no archive."""
    return f'"spark.driver.extraJavaOptions" = "{quick_java()}"\n"spark.executor.extraJavaOptions" = "{_QUICK}"\n'


def _record(archive: Path) -> None:
    unfinished = archive.with_suffix(".part")
    options = f"{_QUICK} -XX:ArchiveClassesAtExit={unfinished}"
    environment = {
        **os.environ,
        "JAVA_HOME": str(java_home_for_spark()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with TemporaryDirectory() as checkpoint:
        command = [sys.executable, "-c", _SESSION, options, checkpoint]
        # Java writes the archive when Python has ended already, and has these pipes until then.
        subprocess.run(command, env=environment, check=True, timeout=600, capture_output=True)
    unfinished.replace(archive)
    for old in sorted(archive.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink()
