"""One table's topic and a SQLite file that follows it, for tests of checkpoints and sinks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.errors import TailraceError
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration.feed import Feed
from tests.support.waiting import until
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

    def until(self, ids: set[int]) -> None:
        """Wait until the file has these rows."""
        until(lambda: self.ids() == ids, f"{len(ids)} rows at the sink", 120, state=self.ids)

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
                except TailraceError as error:
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
        own: dict[str, Any] = {
            "snapshot": "never",
            "checkpoint": str(self._folder / "checkpoint"),
            "fail_on_data_loss": stops,
        }
        kafka = {"bootstrap.servers": self._kafka.bootstrap}
        settings = Settings.model_validate({"kafka": kafka, "topics": {"prefix": self._prefix}, "stream": own})
        sink, place = SqlSink(self.location), SinkInfo("", "", self.location, "")
        try:
            yield Stream(self._spark, settings, sink, stop=stop, metrics=StreamMetrics(place))
        finally:
            sink.close()
