"""`tailrace_spark.changes` by Spark Connect: the session is on a server, and this process has no Java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tailrace.local import LocalKafka
from tailrace_schemas.streams import stream_for
from tests.integration.feed import GENERATION_AT, Feed, generation_of
from tests.services.spark_connect import SparkConnectServer
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

ROOT = Path(__file__).parents[2]
ITEMS = table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name="items")
OTHER = table({"id": "text"}, regular={"n": "varint"}, keyspace="shop", name="other")


def test_changes_are_read_on_a_server(kafka: LocalKafka, prefix: str, feed: Feed, tmp_path: Path) -> None:
    generation = generation_of(GENERATION_AT)
    twice = Log(ITEMS).insert((1,), (), 5_000_000, v=7)
    sent = [twice, Log(ITEMS).update((2,), (), 6_000_000, v=8), Log(OTHER).insert(("x",), (), 5_000_000, n="1")]
    feed.publish([*sent, twice])
    config = tmp_path / "tailrace.toml"
    config.write_text(f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n')
    with SparkConnectServer(tmp_path / "server") as server:
        words = (server.url, str(config), str(tmp_path / "written"), str(ITEMS))
        ended = subprocess.run(
            [sys.executable, "-m", "tests.integration.connect_job", *words],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, "JAVA_HOME": "/nowhere"},
            timeout=300,
        )
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    assert found["session"].startswith("pyspark.sql.connect")
    assert sorted(found["every"]) == sorted(
        [change.op.value, change.token, stream_for(generation, change.token).value.hex(), ["late"]]
        for change in (*sent, twice)
    )
    assert sorted(found["one"]) == [[1, 7], [2, 8]]
