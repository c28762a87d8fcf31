"""The stream's numbers for Prometheus. Names are a contract with dashboards: docs/metrics.md lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace_common.web import Answer, WebServer
from tailrace_spark.sinks.protocol import Summary

QueryProgress = Callable[[], Mapping[str, Any] | None]
"""Spark's last progress of the query, as `StreamingQuery.lastProgress` gives it; None before there is any."""

_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table's part of a micro-batch: records, and seconds from the newest write in it to the sink's commit."""

    records: int
    lag_seconds: float


class StreamMetrics:
    """Counts what a Stream does, in a registry of its own. Any thread may read, the stream's writes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._batches = Counter("tailrace_stream_batches", "Micro-batches written to the sink.", registry=self.registry)
        self._records = Counter(
            "tailrace_stream_records", "Records read and written, by table.", ["table"], registry=self.registry
        )
        self._merged = Counter(
            "tailrace_stream_changes_merged", "Changes that the sink took in.", registry=self.registry
        )
        self._rows = Counter(
            "tailrace_stream_rows_changed", "Rows whose state changed by them.", registry=self.registry
        )
        self._letters = Counter(
            "tailrace_stream_dead_letters", "Records set aside by the sink.", registry=self.registry
        )
        self._marked = Counter(
            "tailrace_stream_marked", "Records with a mark, such as late.", ["mark"], registry=self.registry
        )
        self._held_seconds = Counter(
            "tailrace_stream_held_seconds", "Seconds that batches waited.", registry=self.registry
        )
        self._held = Gauge(
            "tailrace_stream_held", "1 while a batch waits for the generations or the sink.", registry=self.registry
        )
        self._seconds = Histogram(
            "tailrace_stream_batch_seconds",
            "Seconds from a batch's start to its commit.",
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._lag = Gauge(
            "tailrace_stream_lag_seconds",
            "Seconds from a table's newest write to its commit.",
            ["table"],
            registry=self.registry,
        )
        self._last = Gauge(
            "tailrace_stream_last_commit_timestamp_seconds", "When the last batch was written.", registry=self.registry
        )

    def wrote(
        self,
        summary: Summary,
        tables: Mapping[str, TableProgress],
        marks: Mapping[str, int],
        *,
        seconds: float,
        held_seconds: float,
    ) -> None:
        """A batch was written."""
        self._batches.inc()
        self._merged.inc(summary.changes)
        self._rows.inc(summary.rows)
        self._letters.inc(summary.dead_letters)
        for mark, count in marks.items():
            self._marked.labels(mark).inc(count)
        for name, table in tables.items():
            self._records.labels(name).inc(table.records)
            self._lag.labels(name).set(table.lag_seconds)
        self._seconds.observe(seconds)
        self._held_seconds.inc(held_seconds)
        self._last.set_to_current_time()

    def swept(self, rows: int) -> None:
        """Rows expired while nothing came."""
        self._rows.inc(rows)

    def held(self, waits: bool) -> None:
        """Whether a batch waits now."""
        self._held.set(waits)

    def watch(self, query: QueryProgress) -> None:
        """Tell what Spark says of the query, too; asked for whenever the metrics are read."""
        self.registry.register(_Query(query))


class _Query(Collector):
    def __init__(self, progress: QueryProgress) -> None:
        self._progress = progress

    def describe(self) -> list[Metric]:
        return []  # else registering would ask the query

    def collect(self) -> Iterator[Metric]:
        progress = self._progress()
        if progress is None:
            return
        rate = progress["processedRowsPerSecond"]
        yield GaugeMetricFamily("tailrace_stream_rows_per_second", "Rate of the last batch.", value=rate)
        watermark = progress["eventTime"].get("watermark")
        if watermark is not None:
            at = datetime.fromisoformat(watermark).timestamp()
            words = "Changes taken up before this are forgotten: copies of them would be passed on."
            yield GaugeMetricFamily("tailrace_stream_watermark_timestamp_seconds", words, value=at)


class MetricsServer(WebServer):
    """Serves /metrics over HTTP, from a thread of its own. Raises SettingsError when the address is taken."""

    def __init__(self, metrics: StreamMetrics, address: str, port: int) -> None:
        super().__init__(partial(_answer, metrics), address, port, setting="stream.metrics_address")


def _answer(metrics: StreamMetrics, path: str, _accepts: str) -> Answer:
    if path != "/metrics":
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"paths: /metrics\n")
    return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry))
