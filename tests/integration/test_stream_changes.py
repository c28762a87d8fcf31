"""`tailrace_spark.changes` as Spark users meet it: every table at once, one table's typed columns, the example."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import tailrace_spark
from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.streams import stream_for
from tailrace_spark.streams import assign as assignment
from tests.integration.feed import GENERATION_AT, Feed
from tests.integration.stream_settings import stream_settings
from tests.services.class_archive import quick_java_lines
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "stream_to_console.py"
OLD = table({"id": "int"}, regular={"v": "int", "gone": "text"}, keyspace="shop", name="items")
NEW = table(
    {"id": "int"}, regular={"v": "int", "tags": "set<text>"}, dropped={"gone": ("text", 50)},
    keyspace="shop", name="items",
)  # fmt: skip
OTHER = table({"id": "text"}, regular={"n": "varint"}, keyspace="Shop", name="Odd.name")


@pytest.fixture
def settings(kafka: LocalKafka, prefix: str) -> Settings:
    """Settings that only say where Kafka is."""
    return stream_settings(kafka, prefix)


def rows(frame: DataFrame, name: str) -> list[Row]:
    """Everything that is there, through a memory table."""
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return frame.sparkSession.table(name).collect()


def test_one_table_with_its_typed_columns(spark: SparkSession, feed: Feed, settings: Settings, prefix: str) -> None:
    feed.publish(
        [Log(OLD).insert((1,), (), 5_000_000, v=7, gone="old"), Log(OTHER).update(("x",), (), 5_000_000, n="1")]
    )
    feed.publish(
        [Log(NEW).update((2,), (), 6_000_000, tags={"=": None, "a": ""}), Log(NEW).update((3,), (), 6_000_000, v=None)]
    )
    frame = tailrace_spark.changes(spark, settings, "shop.items")
    assert frame.select("columns.*").schema.simpleString() == (
        "struct<tags:struct<deleted_at:bigint,set:array<struct<path:binary,key:string>>,"
        "removed:array<struct<path:binary,key:string>>>,v:int>"
    )
    found = {row.key.id: row for row in rows(frame, prefix)}
    assert found.keys() == {1, 2, 3}
    assert (found[1].op, found[1].columns.v, found[1].columns.tags) == ("insert", 7, None)
    assert found[2].columns.tags.deleted_at == 5_999_999
    assert [item.key for item in found[2].columns.tags.set] == ["a"]
    assert (found[3].columns.v, found[3].deleted) == (None, ["v"])
    assert found[2].source.datacenter == "dc1"


@pytest.mark.promise("stream.no-generation")
def test_a_task_holds_until_a_generation_is_valid(
    empty_feed: Feed, kafka: LocalKafka, prefix: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a task calls when it starts, here in a thread: it returns when there is something to assign by."""
    monkeypatch.setattr(assignment, "_readers", {})
    source = assignment.generations_of_task({"bootstrap.servers": kafka.bootstrap}, prefix)
    with ThreadPoolExecutor(1) as worker:
        commit = empty_feed.announce_half()
        task = worker.submit(source)
        until(lambda: "no valid generation is published yet: is an agent running?" in caplog.text, "the warning")
        assert not task.done()
        generation = commit()
        table = task.result(60)
        again = worker.submit(source).result(60)
    for known in (table, again):
        assert known.timestamps.tolist() == [GENERATION_AT]
        found = known.assign(np.array([5], dtype=np.int64), np.array([GENERATION_AT * 1000], dtype=np.int64))
        assert found.streams.tolist() == [stream_for(generation, 5).value]
    assert table.known_until is not None
    assert again.known_until is not None
    assert again.known_until >= table.known_until
    [reader] = assignment._readers.values()  # a worker's stay open as long as it lives
    reader.close()


@pytest.mark.usefixtures("feed")
def test_a_table_that_nobody_published_is_named(spark: SparkSession, settings: Settings) -> None:
    with pytest.raises(ServiceError, match=r"shop\.nothing has no schema"):
        tailrace_spark.changes(spark, settings, "shop.nothing")


@pytest.mark.long
def test_the_example_shows_changes(feed: Feed, kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    feed.publish([Log(OLD).insert((41,), (), 5_000_000, v=42)])
    config = tmp_path / "tailrace.toml"
    config.write_text(
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n[topics]\nprefix = "{prefix}"\n'
        '[stream.spark]\n"spark.master" = "local[1]"\n"spark.driver.memory" = "512m"\n'
        f"{quick_java_lines()}"
    )

    command = [sys.executable, str(EXAMPLE), "-c", str(config), "--once"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "shop.items" in ended.stdout
    assert "insert" in ended.stdout
