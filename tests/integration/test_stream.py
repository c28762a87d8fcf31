"""The stream on a real Kafka and Spark: topics to SQLite and PostgreSQL, restarts, re-delivery, poison."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.change import Change
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_spark.batch.delivery import CommitMessage, MicroBatch, Summary
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.letters import LetterTopic
from tailrace_spark.sinks.protocol import BatchWrite, Needed, nothing_needed
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import GENERATION_AT, Feed
from tests.integration.letters import letters_in
from tests.integration.queries import status_of
from tests.integration.stream_settings import stream_settings
from tests.integration.streams import Running, followed
from tests.postgres import new_database
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = 5_000_000
ORDERS = table(
    {"customer": "text"}, {"number": "int"}, {"name": "text"}, {"amount": "decimal", "lines": "list<text>"},
    keyspace="shop", name="orders",
)  # fmt: skip
WIDER = table(
    {"customer": "text"}, {"number": "int"}, {"name": "text"},
    {"amount": "decimal", "lines": "list<text>", "note": "text"}, keyspace="shop", name="orders",
)  # fmt: skip
LOG = Log(ORDERS)


@pytest.fixture
def settings(kafka: LocalKafka, prefix: str, tmp_path: Path) -> Settings:
    """Settings of a stream of its own."""
    return stream_settings(kafka, prefix, {"checkpoint": str(tmp_path / "checkpoint"), "max_offsets_per_trigger": 40})


class TaskDatabase(Database):
    """A database that a stream's tasks write."""


@pytest.fixture(params=["sqlite", "postgresql-executors"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A new database and a way to look into it."""
    lite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path / 'sink.db'}" if lite else new_database()
    with closing((Database if lite else TaskDatabase)(url)) as database:
        yield database


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Database]:
    """A SQLite file, which the driver writes."""
    with closing(Database(f"sqlite:///{tmp_path / 'file.db'}")) as file:
        yield file


def executed(settings: Settings, database: Database) -> Settings:
    """The settings with the execution that a test is to have."""
    execution = "executors" if isinstance(database, TaskDatabase) else "driver"
    return settings.model_copy(update={"stream": settings.stream.model_copy(update={"execution": execution})})


def follow(spark: SparkSession, settings: Settings, database: Database, sink: SqlSink | None = None) -> list[Progress]:
    """Stream what is there, then end."""
    own = executed(settings, database)
    with closing(sink or SqlSink(database.url, letters=LetterTopic.of(settings, "local"))) as target:
        batches = followed(spark, own, target)
    assert {batch.execution for batch in batches} <= {own.stream.execution}
    return batches


def orders(database: Database) -> list[tuple[object, ...]]:
    rows = database.select(
        'SELECT customer, number, name, CAST(amount AS TEXT), CAST("lines" AS TEXT) FROM shop_orders'
    )
    return [(*row[:4], None if row[4] is None else json.loads(row[4])) for row in rows]


def history() -> list[Change]:
    """A history of every kind of change, of several partitions."""
    changes: list[Change] = []
    for customer in range(8):
        key = (f"c{customer}",)
        changes += [LOG.static(key, WRITTEN, name=f"Name {customer}")]
        changes += [LOG.insert(key, (n,), WRITTEN, amount=f"{n}.50", lines={"=": None, 1: "a"}) for n in range(6)]
        changes += [
            LOG.update(key, (0,), WRITTEN + 1, lines={2: "b"}),
            LOG.update(key, (1,), WRITTEN + 1, amount=None),
            LOG.delete(key, (2,), WRITTEN + 1),
            LOG.delete_range(key, (3,), (4,), WRITTEN + 1),
        ]
    return [*changes, LOG.delete_partition(("c7",), WRITTEN + 5)]


EXPECTED = [
    row
    for c in range(7)
    for row in (
        (f"c{c}", 0, f"Name {c}", "0.50", ["a", "b"]),
        (f"c{c}", 1, f"Name {c}", None, ["a"]),
        (f"c{c}", 5, f"Name {c}", "5.50", ["a"]),
    )
]


@pytest.mark.spine
def test_topics_reach_the_database(
    spark: SparkSession, kafka: LocalKafka, prefix: str, feed: Feed, settings: Settings, database: Database
) -> None:
    feed.publish(history())
    feed.publish([LOG.insert(("aborted",), (1,), WRITTEN)], commit=False)
    feed.poison(ORDERS, b"hello, this is no change", b"\xc3\x01" + b"\xee" * 30)
    batches = follow(spark, settings, database)
    assert orders(database) == EXPECTED
    assert sum(batch.records for batch in batches) == len(history()) + 2
    assert len(batches) > 1
    assert sum(batch.marks.get("undecodable", 0) for batch in batches) >= 1
    assert all(batch.marks.get("late", 0) == batch.records - batch.marks.get("undecodable", 0) for batch in batches)
    letters = letters_in(kafka, prefix)
    assert ["published" in letter.reason or "starts with" in letter.reason for letter in letters] == [True, True]
    assert {letter.message for letter in letters} == {b"hello, this is no change", b"\xc3\x01" + b"\xee" * 30}


@pytest.mark.spine
def test_a_restart_goes_on_from_the_checkpoint(
    spark: SparkSession, feed: Feed, settings: Settings, database: Database
) -> None:
    feed.publish([LOG.insert(("a",), (1,), WRITTEN, amount="1")])
    follow(spark, settings, database)
    feed.publish([LOG.insert(("a",), (2,), WRITTEN, amount="2"), LOG.static(("a",), WRITTEN, name="A")])
    wider = Log(WIDER)
    feed.publish([wider.insert(("b",), (1,), WRITTEN, note="new column"), LOG.insert(("b",), (2,), WRITTEN)])
    batches = follow(spark, settings, database)
    assert sum(batch.records for batch in batches) == 4
    assert orders(database) == [
        ("a", 1, "A", "1", None), ("a", 2, "A", "2", None), ("b", 1, None, None, None), ("b", 2, None, None, None),
    ]  # fmt: skip
    assert database.select("SELECT note FROM shop_orders WHERE note IS NOT NULL") == [("new column",)]


def test_a_running_stream_takes_a_definition_that_is_announced_again_for_the_newest(
    spark: SparkSession, feed: Feed, settings: Settings, file: Database
) -> None:
    """No message misses its id, so the stream looks for it."""
    batches, stop, sink = list[Progress](), threading.Event(), SqlSink(file.url)
    feed.publish([LOG.insert(("a",), (1,), WRITTEN)])
    [customer] = ORDERS.partition_key
    feed.publish([Log(replace(ORDERS, partition_key=(replace(customer, name="buyer"),))).insert(("b",), (1,), WRITTEN)])
    stream = Stream(spark, executed(settings, file), sink, stop=stop, on_batch=batches.append)
    with closing(sink), Running(stream, stop, processingTime="0 seconds"):
        until(lambda: sum(batch.records for batch in batches) == 2, "2 records")
        assert "buyer" in file.columns("shop_orders")
        feed.add(ORDERS)
        feed.publish([LOG.insert(("c",), (1,), WRITTEN)])
        until(lambda: sum(batch.records for batch in batches) == 3, "3 records")
        assert "buyer" not in file.columns("shop_orders")
        assert file.select("SELECT customer FROM shop_orders ORDER BY 1") == [("a",), ("b",), ("c",)]


class Crashing(SqlSink):
    """Dies when its batch is committed and the checkpoint is not."""

    def batch_write(self, batch: MicroBatch, needed: Needed = nothing_needed) -> BatchWrite:
        plan = super().batch_write(batch, needed)

        def commit(messages: Sequence[CommitMessage]) -> Summary:
            plan.commit(messages)
            raise RuntimeError("killed between the sink's commit and the checkpoint")

        return replace(plan, commit=commit)


@pytest.mark.spine
def test_a_batch_that_comes_again_changes_nothing(
    spark: SparkSession, feed: Feed, settings: Settings, database: Database
) -> None:
    feed.publish(history()[:30])
    with pytest.raises(ServiceError, match="killed between"):
        follow(spark, settings, database, Crashing(database.url))
    before = database.everything()
    assert before["shop_orders"]
    batches = follow(spark, settings, database)
    assert [(batch.records, batch.summary.rows) for batch in batches] == [(30, 0)]
    after = database.everything()
    # How far the stream is stands behind the batch: the sink may have more than it says, never less.
    assert [[batch for _, batch, _ in state.pop("tailrace_streams")] for state in (before, after)] == [[-1], [0]]
    [[(_, earlier)], [(_, later)]] = [state.pop("tailrace_fences") for state in (before, after)]
    assert earlier < later
    assert after == before


@pytest.mark.spine
@pytest.mark.promise("stream.repeated-batch")
def test_a_batch_that_comes_again_is_assigned_as_before(
    spark: SparkSession, feed: Feed, settings: Settings, file: Database
) -> None:
    """A write of 2100 is ahead of what the first run knew; the second run must not know better."""
    ahead = 4_102_444_800_000
    feed.publish([LOG.insert(("a",), (1,), ahead * 1000, amount="1")])
    with pytest.raises(ServiceError, match="killed between"):
        follow(spark, settings, file, Crashing(file.url))
    folder = Path(settings.stream.checkpoint, "tailrace")
    [noted] = [json.loads(note.read_text()) for note in folder.glob("0.json")]
    assert len(noted["generations"]) == 1
    feed.announce(ahead - 1000, predecessor=GENERATION_AT)
    batches = follow(spark, settings, file)
    assert [batch.marks for batch in batches] == [{"ahead": 1}]
    assert [json.loads(note.read_text()) for note in folder.glob("0.json")] == [noted]
    feed.publish([LOG.insert(("a",), (2,), ahead * 1000, amount="1")])
    follow(spark, settings, file)
    assert len(json.loads((folder / "1.json").read_text())["generations"]) == 2


WRITER = "spark.sql.streaming.checkpointFileManagerClass"


@pytest.mark.promise("stream.format-versions")
def test_another_formats_checkpoint_is_refused(
    spark: SparkSession, feed: Feed, settings: Settings, file: Database
) -> None:
    note = Path(settings.stream.checkpoint, "tailrace", "stream.json")
    feed.publish([LOG.insert(("a",), (1,), WRITTEN, amount="1")])
    spark.conf.unset(WRITER)
    follow(spark, settings, file)
    assert str(spark.conf.get(WRITER, None)).endswith(".FileSystemBasedCheckpointFileManager")
    written = json.loads(note.read_text())
    feed.publish([LOG.insert(("a",), (2,), WRITTEN, amount="2")])
    for difference in (-1, 1):
        note.write_text(json.dumps({**written, "format": written["format"] + difference}))
        with pytest.raises(SettingsError, match="was written by another version of Tailrace"):
            follow(spark, settings, file)
    assert [row[1] for row in orders(file)] == [1]


@pytest.mark.promise("stream.unknown-checkpoint")
def test_a_checkpoint_whose_form_is_not_known_is_read_on_with_one_warning(
    spark: SparkSession,
    feed: Feed,
    settings: Settings,
    file: Database,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark knows the form of its own files."""
    feed.publish([LOG.insert(("a",), (1,), WRITTEN, amount="1")])
    follow(spark, settings, file)
    monkeypatch.setattr("tailrace_spark.job.offsets._VERSION", "v9")
    feed.publish([LOG.insert(("a",), (2,), WRITTEN, amount="2")])
    assert [batch.records for batch in follow(spark, settings, file) if batch.records] == [1]
    assert [row[1] for row in orders(file)] == [1, 2]
    assert caplog.text.count("have a form that this version does not know") == 1


@pytest.mark.spine
@pytest.mark.promise("stream.new-topic")
def test_a_running_stream_reads_new_tables_and_tells_of_itself(
    spark: SparkSession, feed: Feed, settings: Settings, file: Database
) -> None:
    """A table's topic that appears is read by the next micro-batch that begins; the query is the same all along."""
    batches, stop, sink = list[Progress](), threading.Event(), SqlSink(file.url)
    old, new = (
        Log(table({"id": "int"}, regular={"v": "int"}, keyspace="shop", name=name, table_id=uuid4()))
        for name in ("old", "new")
    )
    feed.publish([*history(), *(old.insert((number,), (), WRITTEN, v=1) for number in range(20))])
    stream = Stream(spark, executed(settings, file), sink, stop=stop, on_batch=batches.append)
    with closing(sink), Running(stream, stop, processingTime="0 seconds"):
        until(lambda: sum(batch.records for batch in batches) == len(history()) + 20, "all records")
        [query] = spark.streams.active
        run, before = query.runId, len(batches)
        feed.publish([new.insert((number,), (), WRITTEN + number, v=1) for number in range(6)])
        until(lambda: sum(batch.records for batch in batches[before:]) == 6, "6 records")
        assert len(file.select("SELECT * FROM shop_new")) == 6
        assert query.runId == run
        until(lambda: query.recentProgress[-1]["batchId"] == batches[-1].batch, "the progress of the last batch")
        told = [one for one in query.recentProgress if one["batchId"] > batches[before - 1].batch]
        assert all("tailrace" in one["observedMetrics"] for one in told)
        observed = [one["observedMetrics"]["tailrace"].asDict() for one in told]
        assert [sum(one[name] for one in observed) for name in ("records", "undecodable", "late")] == [6, 0, 6]
        assert max(one["written"] or 0 for one in observed) == WRITTEN + 5
        assert tasks_of(spark, str(run)) == spark.sparkContext.defaultParallelism


def tasks_of(spark: SparkSession, run: str) -> int:
    """The most tasks that a stage of a query had, as far as Spark remembers its jobs."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(run)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return max(stage.numTasks for stage in stages if stage is not None)


@pytest.mark.promise("stream.no-generation", "stream.status")
def test_it_waits_for_topics_and_the_first_generation(
    spark: SparkSession, empty_feed: Feed, settings: Settings, file: Database
) -> None:
    stop, seen, held = threading.Event(), threading.Event(), list[str]()
    sink = SqlSink(file.url)

    def on_batch(progress: Progress) -> None:
        held.extend(progress.blocked_by)
        if progress.records:
            seen.set()

    metrics = StreamMetrics()
    stream = Stream(spark, executed(settings, file), sink, stop=stop, on_batch=on_batch, metrics=metrics)
    with closing(sink), Running(stream, stop, processingTime="0 seconds"):
        empty_feed.publish([LOG.insert(("a",), (1,), WRITTEN, amount="1")])
        until(lambda: "Batch 0 waits for the generations: Kafka: " in status_of(spark), "Kafka's trouble")
        commit = empty_feed.announce_half()
        until(lambda: "Batch 0 waits for the generations: no valid generation" in status_of(spark), "another reason")
        assert not seen.is_set(), "without a generation nothing may be written"
        until(lambda: "no valid generation is published yet" in str(metrics.status()["blocked"]), "its status")
        commit()
        assert seen.wait(60)
    assert orders(file) == [("a", 1, None, "1", None)]
    assert [why.split(":")[0] for why in held] == ["generations", "generations"]
    assert status_of(spark) == ""
    told: Any = metrics.status()
    assert (told["blocked"], told["last_error"]["what"]) == (None, "generations")
    assert told["counts"]["retries"] > 1
