"""A sink that is deleted, or restored from a backup older than the checkpoint: the stream stops, and says why."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace.local.process import wait_until
from tailrace_common.settings import Settings
from tailrace_schemas.errors import DataLossError, ServiceError
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="rows", table_id=uuid4())


class Followed:
    """One table's topic, and the SQLite file that follows it."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, prefix: str, folder: Path) -> None:
        self._spark, self._kafka, self._prefix, self._folder = spark, kafka, prefix, folder
        self.feed = Feed(kafka.bootstrap, prefix)
        self.feed.announce()
        self.file = folder / "sink.db"
        self.location = f"sqlite:///{self.file}"

    def insert(self, *ids: int) -> None:
        self.feed.publish([Log(ROWS).insert((number,), (), 5_000_000, v="v") for number in ids])

    def ids(self) -> set[int]:
        engine = sa.create_engine(self.location)
        try:
            database = Database(self.location, engine)
            named = "shop_rows" in database.names()
            return {row[0] for row in database.select("SELECT id FROM shop_rows")} if named else set()
        finally:
            engine.dispose()

    def ends(self) -> list[int]:
        return [self.feed.end(ROWS, number) for number in range(self.feed.options.partitions)]

    def delete(self) -> None:
        """Delete the database, and what SQLite has beside it."""
        for file in self._folder.glob("sink.db*"):
            file.unlink()

    def drain(self, *, stops: bool = True) -> None:
        """Stream what is there, then end."""
        with self._stream(threading.Event(), stops=stops) as stream:
            stream.run(availableNow=True)

    @contextmanager
    def running(self) -> Iterator[list[Exception]]:
        """A stream in a thread of its own, and what it raised."""
        stop, errors = threading.Event(), list[Exception]()
        with self._stream(stop, stops=True) as stream:

            def run() -> None:
                try:
                    stream.run(processingTime="0 seconds")
                except (DataLossError, ServiceError) as error:
                    errors.append(error)

            thread = threading.Thread(target=run)
            thread.start()
            try:
                yield errors
            finally:
                stop.set()
                thread.join(120)

    @contextmanager
    def _stream(self, stop: threading.Event, *, stops: bool) -> Iterator[Stream]:
        own: dict[str, Any] = {"checkpoint": str(self._folder / "checkpoint"), "fail_on_data_loss": stops}
        kafka = {"bootstrap.servers": self._kafka.bootstrap}
        settings = Settings.model_validate({"kafka": kafka, "topics": {"prefix": self._prefix}, "stream": own})
        sink = SqlSink(self.location)
        try:
            yield Stream(self._spark, settings, sink, stop=stop, location=self.location)
        finally:
            sink.close()


@pytest.fixture
def followed(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Followed]:
    """A table with ten rows, all of which the sink has."""
    followed = Followed(spark, kafka, prefix, tmp_path)
    followed.insert(*range(10))
    followed.drain()
    assert followed.ids() == set(range(10))
    yield followed
    followed.feed.close()


def test_a_deleted_database_stops_the_stream_where_its_checkpoint_stays(followed: Followed, tmp_path: Path) -> None:
    ends = followed.ends()
    followed.delete()
    followed.insert(10)
    with pytest.raises(DataLossError, match="the sink has nothing of this stream") as raised:
        followed.drain()
    words = str(raised.value)
    assert all(f"partition {number} up to {end - 1}" in words for number, end in enumerate(ends)), words
    assert followed.location in words
    assert "set another stream.checkpoint" in words
    assert followed.ids() == set()
    (tmp_path / "checkpoint").rename(tmp_path / "moved")  # as the message says
    followed.drain()
    assert followed.ids() == set(range(11))


def test_a_database_restored_from_an_older_backup_stops_the_stream_until_losses_stop_nothing(
    followed: Followed, tmp_path: Path
) -> None:
    shutil.copytree(tmp_path, backup := tmp_path / "backup", ignore=shutil.ignore_patterns("checkpoint"))
    before = followed.ends()
    followed.insert(*range(10, 20))
    followed.drain()
    after = followed.ends()
    followed.delete()
    shutil.copytree(backup, tmp_path, dirs_exist_ok=True)
    followed.insert(20)
    with pytest.raises(DataLossError, match="up to batch 0 only") as raised:
        followed.drain()
    for number, (first, end) in enumerate(zip(before, after, strict=True)):
        assert f"partition {number} offsets {first} to {end - 1}" in str(raised.value)
    followed.drain(stops=False)
    assert followed.ids() == {*range(10), 20}
    followed.insert(21)
    followed.drain()
    assert followed.ids() == {*range(10), 20, 21}


def test_a_database_deleted_under_a_running_stream_stops_it(followed: Followed) -> None:
    with followed.running() as errors:
        followed.insert(10)
        assert wait_until(lambda: followed.ids() == set(range(11)), 120)
        followed.delete()
        followed.insert(11)
        assert wait_until(lambda: bool(errors), 120), followed.ids()
    assert isinstance(errors[0], DataLossError), errors
    assert "the sink has nothing of this stream" in str(errors[0])


def test_a_checkpoint_of_an_earlier_version_goes_on(followed: Followed, tmp_path: Path) -> None:
    """It has no id of its stream yet, and the sink nothing of it."""
    (tmp_path / "checkpoint" / "tailrace" / "sink.json").unlink()
    followed.insert(10)
    followed.drain()
    assert followed.ids() == set(range(11))
    followed.delete()
    with pytest.raises(DataLossError, match="the sink has nothing of this stream"):
        followed.drain()
