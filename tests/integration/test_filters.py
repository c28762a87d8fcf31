"""Filters of streams that are refused at the start."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink
from tests.integration.feed import Feed
from tests.integration.stream_settings import stream_settings
from tests.postgres import new_database
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Following = Callable[..., Settings]

PEOPLE = table({"name": "text"}, regular={"age": "int"}, keyspace="shop", name="people")
EVENTS = table({"at": "int"}, regular={"v": "int"}, keyspace="shop", name="events", table_id=uuid4())


@pytest.fixture
def following(kafka: LocalKafka, prefix: str, tmp_path: Path) -> Following:
    """Settings of a stream into a database, by tasks."""
    sinks, checkpoint = {"local": {"url": new_database()}}, str(tmp_path / "checkpoint")

    def follow(**stream: object) -> Settings:
        return stream_settings(kafka, prefix, {"checkpoint": checkpoint, "execution": "executors", **stream}, sinks)

    return follow


@pytest.mark.promise("shaping.unfit")
def test_a_table_that_is_known_and_does_not_fit_is_refused_at_the_start(
    spark: SparkSession, following: Following, prefix: str, feed: Feed
) -> None:
    """But not one that the stream does not read; a pattern that nothing matches yet is fine."""
    feed.publish([Log(PEOPLE).insert(("ann",), (), 10, age=1), Log(EVENTS).insert((1,), (), 10, v=1)])
    for stream, says in (
        ({"where": {"shop.*": "name = 'ann'"}}, r'shop\.events: stream\.where "shop\.\*": .*has no column name'),
        ({"columns": {"shop.*.at": "drop"}}, r"stream\.columns: drop of shop\.events\.at"),
    ):
        options = following(**stream)
        with (
            closing(open_sink("local", options.sink["local"], prefix)) as sink,
            pytest.raises(SettingsError, match=says),
        ):
            Stream(spark, options, sink).run(availableNow=True)  # begins no query
    where = {"shop.*": "name = 'ann'", "none.*": "nothing = 1"}
    options = following(where=where, topics=f"{prefix}\\.shop\\.people")
    with closing(open_sink("local", options.sink["local"], prefix)) as sink:
        Stream(spark, options, sink).run(availableNow=True)
