"""Filters of streams: what is refused at the start, tables that appear later, tables that follow rows."""

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
from tailrace_schemas.change import Change
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.registry import open_sink, sink_of
from tests.integration.feed import Feed
from tests.integration.letters import letters_in
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


@pytest.fixture(params=["driver", "executors"])
def following(request: pytest.FixtureRequest, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Following:
    """Settings of a stream into a database, by the driver and by tasks."""
    url = new_database()

    def follow(**stream: object) -> Settings:
        return settings_of(kafka, prefix, tmp_path, url, execution=request.param, **stream)

    return follow


def settings_of(kafka: LocalKafka, prefix: str, directory: Path, url: str, **stream: object) -> Settings:
    return Settings.model_validate(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "topics": {"prefix": prefix},
            "stream": {"snapshot": "never", "checkpoint": str(directory / "checkpoint"), **stream},
            "sink": {"local": {"url": url}},
        }
    )


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
    assert {one.execution for one in batches if one.records} == {options.stream.execution}
    assert sum(sum(one.left_out.values()) for one in batches) == 2
    section: Any = options.sink["local"]
    engine = sa.create_engine(section.url.get_secret_value())
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT name, age FROM shop_people")).all() == [("ann", 2)]
    engine.dispose()


@pytest.mark.promise("shaping.row-filter")
def test_a_table_follows_the_rows_that_match_by_other_columns_than_the_keys(
    spark: SparkSession, following: Following, feed: Feed
) -> None:
    """By the driver and by tasks, beside a condition on the key: rows come whole, change, go and come back."""
    people, batches, stop = Log(PEOPLE), list[Progress](), threading.Event()
    names = [f"p{number}" for number in range(40)]
    rounds = [
        [people.insert((name,), (), 10, age=number) for number, name in enumerate(names)],
        [people.update((name,), (), 11, age=39 - number) for number, name in enumerate(names[:20])],
        [people.delete((name,), (), 12) for name in names[::7]] + [people.update(("p33",), (), 13, age=None)],
        [people.insert((name,), (), 9, age=99) for name in names] + [people.update(("p2",), (), 14, age=1)],
    ]
    options = following(where={"shop.*": "row.age BETWEEN 10 AND 35 AND name <> 'p12'"})
    section: Any = options.sink["local"]
    engine, expected, seen = sa.create_engine(section.url.get_secret_value()), dict[str, int](), 0
    with closing(sink_of(options, "local")) as sink:
        stream = Stream(spark, options, sink, stop=stop, on_batch=batches.append)
        running = threading.Thread(target=lambda: stream.run(processingTime="0 seconds"))
        for number, changes in enumerate(rounds):
            feed.publish(changes)
            seen += len(changes)
            if number == 0:
                running.start()
            until(lambda total=seen: sum(one.records for one in batches) == total, f"{seen} records")  # type: ignore[misc]  # of a default
            with engine.connect() as connection:
                rows = connection.execute(sa.text("SELECT name, age FROM shop_people")).all()
            expected = {name: age for name, age in _ages(rounds[: number + 1]).items() if 10 <= age <= 35}
            expected.pop("p12", None)
            assert {row.name: row.age for row in rows} == expected, f"after round {number}"
        stop.set()
        running.join(60)
    engine.dispose()
    assert {one.execution for one in batches if one.records} == {options.stream.execution}


def _ages(rounds: list[list[Change]]) -> dict[str, int]:
    """What SELECT finds: the newest write of each name, unless a newer deletion took it."""
    writes: dict[str, tuple[int, int | None]] = {}
    for change in (change for some in rounds for change in some):
        name = (change.key or b"").decode()
        time = change.deletion.written if change.deletion is not None else change.cells[0].written
        value = None if change.deletion is not None else change.cells[0].value
        if time > writes.get(name, (0, None))[0]:
            writes[name] = time, None if value is None else int.from_bytes(value, "big")
    return {name: age for name, (_, age) in writes.items() if age is not None}


def test_log_tables_take_no_filter(spark: SparkSession, prefix: str) -> None:
    options = Settings.model_validate(
        {"topics": {"prefix": prefix}, "stream": {"where": {"a.b": "x = 1"}}, "sink": {"l": {"type": "log-tables"}}}
    )
    with (
        closing(open_sink("l", options.sink["l"], prefix)) as sink,
        pytest.raises(SettingsError, match=r"stream\.where is not for log tables"),
    ):
        Stream(spark, options, sink)
