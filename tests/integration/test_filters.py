"""Filters of streams: what is refused at the start, and tables that appear later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink, sink_of
from tests.integration.feed import Feed
from tests.integration.letters import letters_in
from tests.integration.stream_settings import stream_settings
from tests.postgres import new_database
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Following = Callable[..., Settings]

PEOPLE = table({"name": "text"}, regular={"age": "int"}, keyspace="shop", name="people")
EVENTS = table({"at": "int"}, regular={"v": "int"}, keyspace="shop", name="events", table_id=uuid4())
LOGS = table({"id": "int"}, regular={"v": "int"}, keyspace="other", name="logs", table_id=uuid4())


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


@pytest.mark.promise("shaping.unfit")
def test_a_table_that_appears_and_does_not_fit_goes_to_the_dead_letters_and_holds_up_no_other(
    spark: SparkSession, following: Following, kafka: LocalKafka, prefix: str, feed: Feed
) -> None:
    """By a filter, and by a mask; the others' changes are filtered on."""
    people, batches, stop = Log(PEOPLE), list[Progress](), threading.Event()
    feed.publish([people.insert((name,), (), 10, age=1) for name in ("ann", "bob")])
    options = following(where={"shop.*": "name <> 'bob'"}, columns={"*.logs.id": "drop"})
    with closing(sink_of(options, "local")) as sink:
        stream = Stream(spark, options, sink, stop=stop, on_batch=batches.append)
        running = threading.Thread(target=lambda: stream.run(processingTime="0 seconds"))
        running.start()
        try:
            until(lambda: sum(one.records for one in batches) == 2, "2 records")
            feed.publish([Log(EVENTS).insert((1,), (), 10, v=1), Log(LOGS).insert((1,), (), 10, v=1)])
            feed.publish([people.update((name,), (), 11, age=2) for name in ("ann", "bob")])
            until(lambda: sum(one.records for one in batches) == 6, "6 records")
        finally:
            stop.set()
            running.join(60)
        assert sum((one.summary for one in batches), Summary()) == Summary(changes=2, rows=2, dead_letters=2)
    reasons = sorted(one.reason for one in letters_in(kafka, prefix))
    assert "shop.events: stream.where" in reasons[0]
    assert "stream.columns: drop of other.logs.id" in reasons[1]
    assert {one.execution for one in batches if one.records} == {"executors"}
    assert sum(sum(one.left_out.values()) for one in batches) == 2
    section: Any = options.sink["local"]
    engine = sa.create_engine(section.url.get_secret_value())
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT name, age FROM shop_people")).all() == [("ann", 2)]
    engine.dispose()
