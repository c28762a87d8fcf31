"""Topics and a SQLite file that a stream fills from them, for tests of checkpoints, topics and sinks."""

from __future__ import annotations

import json
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from tailrace.local import LocalKafka
from tailrace_common.settings import Settings
from tailrace_schemas.table import Table
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.progress import SinkInfo
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.integration import streams
from tests.integration.feed import Feed
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS: Final = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="rows", table_id=uuid4())


class Followed:
    """The topics of one prefix, and the SQLite file that follows them."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, prefix: str, folder: Path) -> None:
        self.spark, self.prefix = spark, prefix
        self._kafka, self._folder = kafka, folder
        self.feed = Feed(kafka.bootstrap, prefix)
        self.feed.announce()
        self.location = f"sqlite:///{folder / 'sink.db'}"

    def sink(self) -> ReachableSink:
        """One as a new process has it."""
        return SqlSink(self.location)

    def settings(self, *, stops: bool) -> Settings:
        own = {"snapshot": "never", "checkpoint": str(self._folder / "checkpoint"), "fail_on_data_loss": stops}
        kafka = {"bootstrap.servers": self._kafka.bootstrap}
        return Settings.model_validate({"kafka": kafka, "topics": {"prefix": self.prefix}, "stream": own})

    def insert(self, which: Table, *ids: int) -> None:
        self.feed.publish([Log(which).insert((number,), (), 5_000_000, v="v") for number in ids])

    def ids(self, which: Table) -> set[int]:
        name = f"shop_{which.name}"
        with closing(Database(self.location)) as database:
            there = name in database.names()
            return {row[0] for row in database.select(f"SELECT id FROM {name}")} if there else set()

    def ends(self, which: Table) -> list[int]:
        return [self.feed.end(which, number) for number in range(self.feed.options.partitions)]

    def delete_file(self) -> None:
        """Delete the database, and what SQLite has beside it."""
        for file in self._folder.glob("sink.db*"):
            file.unlink()

    def drain(self, *, stops: bool = True) -> dict[str, Any]:
        """Stream what is there, then end; the status."""
        with self.running(stops=stops, once=True) as running:
            running.thread.join(240)
            assert not running.thread.is_alive()
        return running.status()

    def running(self, *, stops: bool = True, once: bool = False) -> Running:
        return Running(self, stops=stops, once=once)


class Running(streams.Running):
    """A stream into a sink of its own."""

    def __init__(self, followed: Followed, *, stops: bool, once: bool) -> None:
        self._followed, self._sink, stop = followed, followed.sink(), threading.Event()
        self.metrics = StreamMetrics(SinkInfo("", "", followed.location, ""))
        settings = followed.settings(stops=stops)
        stream = Stream(followed.spark, settings, self._sink, stop=stop, metrics=self.metrics)
        super().__init__(stream, stop, **({"availableNow": True} if once else {"processingTime": "0 seconds"}))

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = json.loads(json.dumps(self.metrics.status()))
        return status

    def __exit__(self, *exc: Any) -> None:
        with closing(self._sink):
            super().__exit__(*exc)

    def until_shown(self, which: Table, ids: set[int]) -> None:
        """Wait until the file has these rows of a table."""
        self.until(lambda: self._followed.ids(which) == ids)
