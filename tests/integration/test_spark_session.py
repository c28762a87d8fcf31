"""Sessions of Spark: a new one follows the caller's settings, and one that runs already stays as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.java.jars import fetch_sets
from tests.integration.session_job import SECRET

ROOT = Path(__file__).parents[2]
DEFAULTS = """
spark.master                  local[1]
spark.ui.enabled              true
spark.ui.port                 0
spark.sql.shuffle.partitions  7
spark.redaction.regex         (?i)mine
spark.executor.memory         600m
spark.executor.cores          3
"""


def run(program: str, environ: dict[str, str]) -> Any:
    """What a program of session_job prints, in a process that nobody has started a Spark in."""
    hidden = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "JAVA_HOME", "SPARK_LOCAL_IP")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.integration.session_job", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
        env={**inherited, **environ},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.promise("spark.caller-decides", "spark.secrets-hidden")
def test_a_new_session_follows_the_callers_settings(tmp_path: Path) -> None:
    folder = tmp_path / "conf"
    folder.mkdir()
    mine = tmp_path / "mine.jar"
    mine.write_bytes(fetch_sets("spark")[0].read_bytes())
    (folder / "spark-defaults.conf").write_text(f"{DEFAULTS}spark.jars {mine}\n")
    made = run("ours", {"SPARK_CONF_DIR": str(folder)})
    conf = made["conf"]
    expected = {
        "spark.master": "local[1]",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "7",
        "spark.executor.memory": "777m",  # [stream.spark] before spark-defaults.conf
        "spark.executor.cores": "3",
        "spark.sql.session.timeZone": "UTC",  # ours, as nobody set it
        "spark.app.name": "tailrace",
        "spark.driver.host": "127.0.0.1",
        "spark.hadoop.fs.s3a.secret.key": SECRET,
    }
    assert {name: conf[name] for name in expected} == expected
    assert conf["spark.redaction.regex"].startswith("(?:(?i)mine)|")
    assert [Path(jar).name.partition("-")[0] for jar in conf["spark.jars"].split(",")][-1] == "mine.jar"
    assert "spark-avro" in conf["spark.jars"]
    assert not made["secret_in_ps"]
    assert made["python"] == sys.executable
    assert [name for name in made["environ"] if not name.startswith("SPARK_")] == []
    assert made["again"] == "7"


@pytest.mark.promise("spark.session-of-others", "spark.secrets-hidden")
def test_changes_leaves_a_session_as_it_is() -> None:
    made = run("theirs", {})
    bug = "spark.sql.streaming.disabledV2MicroBatchReaders"
    hiding = {"spark.sql.redaction.options.regex", "spark.sql.redaction.string.regex"}
    assert set(made["changed"]) - {bug} == hiding
    assert made["options"].startswith("(?:(?i)url)|")
    assert made["strings"].startswith("(?:mine)|")
    assert "jaas" in made["plan"]
    assert SECRET not in made["plan"]
