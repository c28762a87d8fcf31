"""Filters on a real Spark: what is refused at the start, what deletions do, tables that follow a part of the source."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.errors import SettingsError
from tailrace_spark.batch.delivery import Delivered, Piece, RecordId, Summary
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.shaping import shape_of
from tailrace_spark.shaping.change_filters import Filters
from tailrace_spark.sinks.registry import open_sink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.integration.filtering import JUDGES, Judge, delivered
from tests.postgres import new_database
from tests.support.shop import one_change
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.tables import column, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = table(
    {"country": "text", "id": "int"},
    {"day": "date", "number": "int"},
    {"note": "text"},
    {"total": "int"},
    keyspace="shop",
    name="orders",
)
LOG = Log(ORDERS)
ROOT = Path(__file__).resolve().parents[2]
DE, FR, BEFORE, SINCE = ("DE", 1), ("FR", 1), 19_000, 20_000
TRUNCATION = Change(op=Op.TRUNCATE, table=ORDERS, token=0, key=None, deletion=Deletion(5, 1))


@pytest.fixture(params=JUDGES)
def judge(request: pytest.FixtureRequest) -> Judge:
    """The driver, and tasks."""
    return JUDGES[request.param]


Taken = Callable[..., tuple[list[int], list[str]]]


@pytest.fixture
def taken(spark: SparkSession, judge: Judge) -> Taken:
    """Which of the changes a filter lets through, by number, and the reasons of dead letters."""

    def ask(where: str, *changes: Change, written: bool = False) -> tuple[list[int], list[str]]:
        filters = Filters(spark, {"shop.*": where}, written=written)
        piece = judge(filters, delivered(*changes))
        assert sum(filters.left_out.values()) == len(changes) - len(piece.changes) - len(piece.dead_letters)
        return [one.record_id.offset for one in piece.changes], [one.reason for one in piece.dead_letters]

    return ask


@pytest.mark.promise("shaping.unfit")
@pytest.mark.parametrize(
    ("where", "written", "says"),
    [
        ("country = = 'DE'", False, r"is no expression of Spark SQL: \[PARSE_SYNTAX_ERROR\]"),
        ("land = 'DE'", False, r"UNRESOLVED_COLUMN.*`land`.*may ask for country, id, day, number, change"),
        ("total > 5", False, r"`total`.*of other columns a change has only what it writes"),
        ("columns.total > 5", False, r"`columns`\.`total`"),
        ("total > 5", True, r"`total`.*number, change, columns"),
        ("country", False, r"FILTER_NOT_BOOLEAN"),
        ("max(id) > 1", False, r"aggregate functions"),
        ("rand() < 0.5", False, r"neither the time nor chance"),
        ("day > current_date()", False, r"neither the time nor chance"),
        ("id IN (SELECT 1)", False, r"has a query in it"),
    ],
)
def test_what_cannot_be_asked_is_refused(spark: SparkSession, where: str, written: bool, says: str) -> None:
    with pytest.raises(SettingsError, match=f'stream.where "shop.\\*": .*{says}'):
        Filters(spark, {"shop.*": where}, written=written).check(ORDERS)


PART = "country = 'DE' AND day >= DATE'2024-10-04'"  # which is day 20,000


@pytest.mark.promise("shaping.deletions")
@pytest.mark.parametrize(
    ("change", "through"),
    [
        (LOG.insert(DE, (SINCE, 1), 5), True),
        (LOG.insert(DE, (BEFORE, 1), 5), False),
        (LOG.insert(FR, (SINCE, 1), 5), False),
        (LOG.delete(DE, (BEFORE, 1), 5), False),
        (LOG.static(DE, 5, note="n"), True),
        (LOG.static(FR, 5, note="n"), False),
        (LOG.delete_partition(DE, 5), True),
        (LOG.delete_partition(FR, 5), False),
        (LOG.delete_range(DE, (BEFORE,), (SINCE,), 5), True),
        (LOG.delete_range(DE, (BEFORE,), (BEFORE,), 5), False),
        (LOG.delete_range(FR, (BEFORE,), (SINCE,), 5), False),
        (TRUNCATION, True),
    ],
)
def test_what_cannot_be_judged_goes_through(taken: Taken, change: Change, through: bool) -> None:
    assert taken(PART, change) == ([0] if through else [], [])


def test_a_name_in_other_letters_is_the_column_that_spark_takes_it_for(taken: Taken) -> None:
    changes = [LOG.insert(DE, (SINCE, 1), 5), LOG.insert(FR, (SINCE, 1), 5), LOG.delete_partition(FR, 5), TRUNCATION]
    assert taken("COUNTRY = 'DE'", *changes) == ([0, 3], [])
    assert taken("Country = 'DE' AND `Change`.OP <> 'truncate'", *changes) == ([0], [])


@pytest.mark.promise("shaping.filtered-table")
def test_null_is_not_true_where_the_value_is_known(taken: Taken) -> None:
    assert taken("day IS NULL", LOG.insert(DE, (SINCE, 1), 5), LOG.delete_partition(DE, 5)) == ([1], [])
    assert taken("NOT (country = 'DE' OR day = NULL)", LOG.insert(FR, (SINCE, 1), 5)) == ([], [])


def test_filters_of_a_log_may_ask_for_what_a_change_writes(taken: Taken) -> None:
    writes = [LOG.insert(DE, (1, 1), 5, total=9), LOG.update(DE, (1, 1), 6, total=1), LOG.delete(DE, (1, 1), 7)]
    assert taken("columns.total > 5", *writes, written=True) == ([0], [])
    assert taken("columns.total > 5 OR change.op LIKE 'delete%'", *writes, written=True) == ([0, 2], [])


def test_of_what_spark_cannot_evaluate_the_rest_goes_on(taken: Taken) -> None:
    """The reason has none of the values."""
    changes = [LOG.insert((name, 1), (1, 1), 5) for name in ("7", "3", "secret", "8")]
    through, [reason] = taken("CAST(country AS INT) > 5", *changes)
    assert through == [0, 3]
    assert reason == 'stream.where "shop.*" cannot be evaluated of it: CAST_INVALID_INPUT, SQLSTATE 22018'


def test_a_key_column_has_the_name_of_the_newest_definition(spark: SparkSession, judge: Judge) -> None:
    renamed = replace(ORDERS, partition_key=(replace(column("land", "text", ORDERS.key[0].kind, 0)), ORDERS.key[1]))
    filters = Filters(spark, {"shop.*": "land = 'DE'"}, written=False)
    newer = Delivered(RecordId("t", 0, 0), Log(renamed).insert(DE, (1, 1), 5), announced=2)
    older = [Delivered(RecordId("t", 0, at), LOG.insert(key, (1, 1), 6), announced=1) for at, key in ((1, DE), (2, FR))]
    piece = judge(filters, [newer, *older])
    assert [one.record_id.offset for one in piece.changes] == [0, 1]
    started = Filters(spark, {"shop.*": "land = 'DE'"}, written=False)
    started.check(renamed, 2)
    piece = judge(started, [replace(one, record_id=RecordId("t", 0, at)) for at, one in enumerate(older)])
    assert [one.record_id.offset for one in piece.changes] == [0], "what was written before the column was renamed"


def test_the_documents_example_says_what_it_says_of_deletions(spark: SparkSession) -> None:
    example, *_, route = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "shaping.md").read_text("utf-8"), re.DOTALL)
    assert Settings.model_validate(tomllib.loads(route)).stream_sink()[0] == "germany"
    stream = {**tomllib.loads(example)["stream"], "hash_key": "secret"}
    del stream["hash_key_file"]
    options = Settings.model_validate({"stream": stream}).stream
    orders = table(
        {"country": "text", "id": "int"}, {"day": "date"}, {}, {"email": "text", "total": "int"},
        keyspace="shop", name="orders",
    )  # fmt: skip
    log, summer, winter = Log(orders), 20_240, 20_500  # June 2025 and February 2026
    with closing(SqlSink("sqlite://")) as sink:
        shape = shape_of(options, sink, spark)
    assert shape is not None
    shape.check([(0, orders), (1, table({"id": "int"}, keyspace="shop", name="access_log", table_id=uuid4()))])
    changes = [
        log.insert(DE, (winter,), 5, email="ann@shop", total=7),
        log.delete_partition(DE, 5),
        log.delete_range(DE, (summer,), (winter,), 5),
        log.delete_partition(FR, 5),
        log.delete_range(FR, (summer,), (winter,), 5),
        log.delete_range(DE, (summer,), (summer,), 5),
        Change(op=Op.TRUNCATE, table=orders, token=0, key=None, deletion=Deletion(5, 1)),
    ]
    piece = Piece(tuple(Delivered(RecordId("t", 0, number), one) for number, one in enumerate(changes)))
    [found] = shape.shaped([piece])
    assert [one.record_id.offset for one in found.changes] == [0, 1, 2, 6]
    assert [cell.column.name for cell in found.changes[0].change.cells] == ["email", "total_eur"]


# An independent way to the same: the database's own WHERE over the tables that follow everything.

CONDITIONS = [
    ("number = 1", "number = 1"),
    ("day = DATE'1970-01-02' AND customer = 'k'", "day = '1970-01-02'"),
    ("NOT (number > 1 AND day < DATE'1970-01-03')", "NOT (number > 1 AND day < '1970-01-03')"),
    ("customer = 'nobody' AND number = 1", "1 = 0"),
    ("change.op IS NOT NULL AND number + dayofmonth(day) = 3", "number + strftime('%d', day) = 3"),
]
_files: Callable[[], int] = count().__next__


def shown(path: Path, piece: Piece, where: str) -> list[dict[str, Any]]:
    """The rows that the SQL sink shows."""
    with closing(SqlSink(f"sqlite:///{path}")) as sink:
        sink.write([piece])
    engine = sa.create_engine(f"sqlite:///{path}")
    try:
        with engine.connect() as connection:
            if not sa.inspect(connection).has_table("shop_orders"):
                return []
            query = f"SELECT * FROM shop_orders WHERE day IS NOT NULL AND ({where}) ORDER BY day, number"
            return [dict(row) for row in connection.execute(sa.text(query)).mappings()]
    finally:
        engine.dispose()


@pytest.mark.promise("shaping.filtered-table")
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(one_change, min_size=8, max_size=20), st.sampled_from(CONDITIONS))
def test_a_table_of_filtered_changes_is_the_filtered_table(
    spark: SparkSession, tmp_path: Path, changes: list[Change], condition: tuple[str, str]
) -> None:
    piece = Piece(tuple(Delivered(RecordId("t", 0, at), one) for at, one in enumerate(changes)))
    [filtered] = Filters(spark, {"shop.orders": condition[0]}, written=False).filtered([piece])
    assert filtered.dead_letters == ()
    wanted = shown(tmp_path / f"{_files()}.db", piece, condition[1])
    assert shown(tmp_path / f"{_files()}.db", filtered, "1 = 1") == wanted


# In a stream.

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
        ({"where": {"shop.*": "name = 'ann'"}}, r'shop\.events: stream\.where "shop\.\*": .*`name` cannot be resolved'),
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
    spark: SparkSession, following: Following, prefix: str, feed: Feed
) -> None:
    """By a filter, and by a mask; the others' changes are filtered on."""
    people, batches, stop = Log(PEOPLE), list[Progress](), threading.Event()
    feed.publish([people.insert((name,), (), 10, age=1) for name in ("ann", "bob")])
    options = following(where={"shop.*": "name <> 'bob'"}, columns={"*.logs.id": "drop"})
    with closing(open_sink("local", options.sink["local"], prefix)) as sink:
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
        kept = sink.capabilities.dead_letters
        assert kept is not None
        reasons = sorted(one.reason for one in kept.dead_letters(None, 9))
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
    spark: SparkSession, following: Following, prefix: str, feed: Feed
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
    with closing(open_sink("local", options.sink["local"], prefix)) as sink:
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


def test_where_rows_are_made_of_changes_no_filter_may_ask_for_what_one_writes(
    spark: SparkSession, prefix: str, tmp_path: Path
) -> None:
    """Else rows before and after would lack what the filter left out."""
    where = {"where": {"shop.*": "columns.total > 5"}}
    for images, fits in ((None, True), (f"sqlite:///{tmp_path}/images.db", False)):
        section = {"type": "console", **({} if images is None else {"images": images})}
        options = Settings.model_validate({"topics": {"prefix": prefix}, "stream": where, "sink": {"out": section}})
        with closing(open_sink("out", options.sink["out"], prefix)) as sink:
            shape = shape_of(options.stream, sink, spark)
            assert shape is not None
            with nullcontext() if fits else pytest.raises(SettingsError, match=r"`columns`\.`total`"):
                shape.check([(0, ORDERS)])


def test_log_tables_take_no_filter(spark: SparkSession, prefix: str) -> None:
    options = Settings.model_validate(
        {"topics": {"prefix": prefix}, "stream": {"where": {"a.b": "x = 1"}}, "sink": {"l": {"type": "log-tables"}}}
    )
    with (
        closing(open_sink("l", options.sink["l"], prefix)) as sink,
        pytest.raises(SettingsError, match=r"stream\.where is not for log tables"),
    ):
        Stream(spark, options, sink)
