"""The whole stream into a sink: rows a second, and the way of single rows at a low rate."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks.agent.figures import percentile
from benchmarks.stream.corpus import Cluster, change
from benchmarks.stream.stages import Cost, cpu_so_far
from tailrace_common.settings import Settings
from tailrace_spark.batch.delivery import Piece, Summary
from tailrace_spark.job.progress import Progress
from tailrace_spark.job.stream import Stream
from tailrace_spark.sinks.protocol import Capabilities, Sink, write_here
from tailrace_spark.sinks.sql.sink import SqlSink
from tests.support.here_sink import HereSink
from tests.support.waiting import until

_WARM_SECONDS: Final = 900.0


class NoSink(HereSink):
    """Takes everything and keeps nothing."""

    capabilities = Capabilities()

    def take(self, pieces: Iterable[Piece]) -> Summary:
        summary = Summary()
        for piece in pieces:
            summary += Summary(len(piece.changes), 0, len(piece.dead_letters))
        return summary

    def close(self) -> None:
        """There is nothing to give back."""


def settings_of(bootstrap: str, prefix: str, checkpoint: Path, **stream: Any) -> Settings:
    """The stream's settings."""
    kafka = {"bootstrap.servers": bootstrap}
    own = {"snapshot": "never", "checkpoint": str(checkpoint), **stream}
    return Settings.model_validate({"kafka": kafka, "topics": {"prefix": prefix}, "stream": own})


def drained(spark: SparkSession, settings: Settings, sink: Sink) -> Cost:
    """Everything that is there, from the first batch's end to the last one's: the start costs seconds."""
    marks: list[tuple[int, float, float]] = []

    def on_batch(progress: Progress) -> None:
        marks.append((progress.records, time.monotonic(), cpu_so_far()))

    Stream(spark, settings, sink, on_batch=on_batch).run(availableNow=True)
    (_, began, before), *rest = marks
    return Cost(sum(records for records, _, _ in rest), rest[-1][1] - began, rest[-1][2] - before)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the writing of rows to the sink's commit."""

    rows: int
    batches: int
    p50: float
    p95: float
    p99: float


class Timed(HereSink):
    """A sink that notes when what it was given was committed."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.rows: list[tuple[float, float]] = []
        """When each was committed, and written."""
        self.began = 0.0

    @property
    def latencies(self) -> list[float]:
        """Those of the rows that were written since it began to count."""
        return [committed - at for committed, at in self.rows if at > self.began]

    def take(self, pieces: Iterable[Piece]) -> Summary:
        """As the sink that it stands for."""
        written: list[int] = []

        def passed() -> Iterator[Piece]:
            for piece in pieces:
                written.extend(one.change.marker.written for one in piece.changes if one.change.marker)
                yield piece

        summary = write_here(self._sink, passed())
        now = time.time()
        self.rows += [(now, at / 1e6) for at in written]
        return summary

    @property
    def capabilities(self) -> Capabilities:
        return self._sink.capabilities

    def close(self) -> None:
        """As the sink that it stands for."""
        self._sink.close()


def late(
    spark: SparkSession, settings: Settings, url: str, rate: float, seconds: float, warm: int
) -> tuple[Latency, list[Any]]:
    """The way of rows written at a rate for some seconds, once the stream has made so many batches.

    Java compiles Spark's code while it runs, for minutes: on two cores it takes a third of what the batches take.
    """
    bootstrap, prefix = str(settings.kafka.reveal()["bootstrap.servers"]), settings.topics.prefix
    sink, stop = Timed(SqlSink(url)), threading.Event()
    batches: list[int] = []
    stream = Stream(spark, settings, sink, stop=stop, on_batch=lambda one: batches.append(one.batch))
    context = multiprocessing.get_context("spawn")
    enough = context.Event()
    writer = context.Process(target=_write, args=(bootstrap, prefix, rate, enough))
    running = threading.Thread(target=stream.run, kwargs={"processingTime": "0 seconds"})
    running.start()
    writer.start()
    durations: dict[int, Mapping[str, Any]] = {}
    try:
        until(lambda: len(batches) >= warm, f"{warm} batches", _WARM_SECONDS, over=lambda: not running.is_alive())
        sink.began, first = time.time(), len(batches)
        end = time.monotonic() + seconds
        while time.monotonic() < end or not sink.latencies:  # on a busy machine a batch may take longer
            if not running.is_alive() or time.monotonic() > end + _WARM_SECONDS:
                raise RuntimeError(f"no row that was written was committed within {seconds + _WARM_SECONDS:g} s")
            time.sleep(1)  # Spark keeps the progress of the last hundred batches
            for query in spark.streams.active:
                durations.update({one["batchId"]: one["durationMs"] for one in query.recentProgress})
    finally:
        enough.set()
        writer.join()
        stop.set()
        running.join()
        sink.close()
    parts = [percentile(sink.latencies, part) for part in (0.5, 0.95, 0.99)]
    measured = [steps for batch, steps in durations.items() if batch > warm]
    return Latency(len(sink.latencies), len(batches) - first, *parts), measured


def _write(bootstrap: str, prefix: str, rate: float, enough: Any) -> None:
    """Rows at a rate, in transactions of 20 ms as an agent's."""
    cluster = Cluster(bootstrap, prefix)
    cluster.join()
    began, number = time.time(), 0
    while not enough.wait(0.02):
        due = int((time.time() - began) * rate)
        if due > number:
            at = int(time.time() * 1e6)
            cluster.publish(change(n, at) for n in range(number, due))
            number = due
