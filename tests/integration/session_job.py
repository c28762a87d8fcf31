"""Programs with a Spark session: one by `spark_session`, one in a session of the caller's own; each prints JSON."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import subprocess
import sys
from typing import Any

from pyspark.sql import SparkSession

from tailrace_common.java.jars import fetch_sets
from tailrace_common.settings import Settings
from tailrace_spark import changes
from tailrace_spark.job.session import spark_session

SECRET = "hush-hush"  # noqa: S105 - of nobody
OPTIONS = {"spark.executor.memory": "777m", "spark.hadoop.fs.s3a.secret.key": SECRET}
KAFKA = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "me",
    "sasl.password": SECRET,
}


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The names whose values differ."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def in_ours() -> dict[str, Any]:
    environ = dict(os.environ)
    spark = spark_session(OPTIONS)
    processes = subprocess.run(["ps", "-eo", "args", "-ww"], capture_output=True, text=True, check=True).stdout
    again = spark_session({"spark.sql.shuffle.partitions": "99"})
    return {
        "conf": dict(spark.sparkContext.getConf().getAll()),
        "environ": changed(environ, dict(os.environ)),
        "python": spark.sparkContext.pythonExec,
        "secret_in_ps": SECRET in processes,
        "again": again is spark and spark.conf.get("spark.sql.shuffle.partitions"),
    }


def in_theirs() -> dict[str, Any]:
    jars = ",".join(map(str, fetch_sets("spark")))
    builder = SparkSession.builder.master("local[1]").config("spark.jars", jars)
    spark = builder.config("spark.ui.enabled", "false").config("spark.redaction.string.regex", "mine").getOrCreate()
    settings = Settings.model_validate({"kafka": KAFKA, "topics": {"prefix": "p"}})

    def state() -> dict[str, Any]:
        levels = {name: logging.getLogger(name).level for name in ("", "py4j", "pyspark")}
        filters = str(logging.getLogger().filters)
        return {**os.environ, **dict(spark.conf.getAll), **levels, "filters": filters}

    before = state()
    frame, plan = changes(spark_session({"spark.ui.enabled": "true"}), settings), io.StringIO()
    with contextlib.redirect_stdout(plan):
        frame.explain(True)
    return {
        "changed": changed(before, state()),
        "options": spark.conf.get("spark.sql.redaction.options.regex"),
        "strings": spark.conf.get("spark.sql.redaction.string.regex"),
        "plan": plan.getvalue(),
    }


if __name__ == "__main__":
    print(json.dumps({"ours": in_ours, "theirs": in_theirs}[sys.argv[1]]()))  # noqa: T201 - what it is for
