"""The stream's numbers for Prometheus, a contract with dashboards (docs/metrics.md lists them), and its page."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace_common.durations import duration_words
from tailrace_common.http_server import Answer, Rows, StatusPage, WebServer
from tailrace_spark.job.offsets import Loss
from tailrace_spark.job.progress import NOWHERE, Ends, Progress, Report, SinkPlace, topic_lag

QueryProgress = Callable[[], Mapping[str, Any] | None]
"""Spark's last progress of the query, as its JSON has it; None before there is any."""

_BUCKETS: Final = (0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300)
_LONGEST_LABEL: Final = 200
PATHS: Final = ("/", "/health/live", "/health/ready", "/status", "/metrics")
_SNAPSHOT_GAUGES: Final = (
    ("reading", "state", "1 while a table's snapshot is read."),
    ("percent", "percent", "Share of the tokens of a table's snapshot that is in the sink."),
    ("rows", "rows", "Rows of a table's snapshot that are in the sink."),
    ("bytes", "bytes", "Bytes of their messages."),
)
# A sweep of a large store takes minutes, and the loop that asks for it stands meanwhile.
_STUCK_SECONDS: Final = 600.0
Status = Mapping[str, Any]


class StreamMetrics:
    """Counts what a Stream does, in a registry of its own. Any thread may read, the stream's writes."""

    def __init__(self, sink_place: SinkPlace = NOWHERE, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._alive: float | None = None
        self.registry = CollectorRegistry()
        self.report = Report(sink_place)
        """What /status says."""
        self._query: QueryProgress = _nothing
        self._ends: Ends | None = None
        self.registry.register(_InfoMetrics(self.report))
        ProcessCollector(registry=self.registry)
        self._batches = Counter("tailrace_stream_batches", "Micro-batches written to the sink.", registry=self.registry)
        self._executors = Gauge(
            "tailrace_stream_executors", "1 where tasks on executors wrote the last batch.", registry=self.registry
        )
        self._records = Counter(
            "tailrace_stream_records", "Records read and written, by table.", ["table"], registry=self.registry
        )
        self._merged = Counter(
            "tailrace_stream_changes_merged", "Changes that the sink merged or wrote.", registry=self.registry
        )
        self._rows = Counter(
            "tailrace_stream_rows_changed", "Rows whose state changed by them.", registry=self.registry
        )
        self._letters = Counter("tailrace_stream_dead_letters", "Dead letters of the sink.", registry=self.registry)
        self._deferred = Counter(
            "tailrace_stream_deferred_changes",
            "Deferred changes: the sink stores them until the database accepts their table.",
            registry=self.registry,
        )
        self._refused = Counter(
            "tailrace_stream_refused",
            "Batches with dead letters or deferred changes of a table, by table.",
            ["table"],
            registry=self.registry,
        )
        self._filtered = Counter(
            "tailrace_stream_filtered", "Changes that filters left out, by table.", ["table"], registry=self.registry
        )
        self._retries = Counter(
            "tailrace_stream_retries", "Attempts at a batch that failed, by what failed.", ["what"],
            registry=self.registry,
        )  # fmt: skip
        self._marked = Counter(
            "tailrace_stream_marked", "Records with a mark, such as late.", ["mark"], registry=self.registry
        )
        self._blocked_seconds = Counter(
            "tailrace_stream_blocked_seconds", "Seconds for which batches were blocked.", registry=self.registry
        )
        self._blocked = Gauge(
            "tailrace_stream_blocked",
            "1 while a batch waits for the generations, Kafka or the sink.",
            registry=self.registry,
        )
        self._losses = Counter(
            "tailrace_stream_losses", "Losses of a topic: deleted, created again, or trimmed before it was read.",
            ["topic"], registry=self.registry,
        )  # fmt: skip
        self._lost = Counter(
            "tailrace_stream_lost_offsets", "Offsets that are known to be lost.", ["topic"], registry=self.registry
        )
        self._stopped = Gauge(
            "tailrace_stream_stopped_topics", "Topics that are left out since they lost records.",
            registry=self.registry,
        )  # fmt: skip
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

    def wrote(self, done: Progress) -> None:
        """A batch was written."""
        summary = done.summary
        self._batches.inc()
        self._executors.set(done.execution == "executors")
        self._merged.inc(summary.changes)
        self._rows.inc(summary.rows)
        self._letters.inc(summary.dead_letters)
        self._deferred.inc(summary.deferred)
        for name in summary.refused:
            self._refused.labels(name).inc()
        for mark, count in done.marks.items():
            self._marked.labels(mark).inc(count)
        for name, count in done.left_out.items():
            self._filtered.labels(name).inc(count)
        for name, table in done.tables.items():
            self._records.labels(name).inc(table.records)
            self._lag.labels(name).set(table.lag_seconds)
        self._seconds.observe(done.seconds)
        self._blocked_seconds.inc(done.blocked_seconds)
        self._last.set_to_current_time()
        self.report.wrote(done)

    def set_aside(self, letters: int) -> None:
        """Rows of a snapshot became dead letters."""
        self._letters.inc(letters)
        self.report.set_aside(letters)

    def lost(self, losses: Iterable[Loss], stopped: Mapping[str, str]) -> None:
        """Kafka has deleted what was not read; `stopped` has the words of each topic that is left out since."""
        for loss in losses:
            self._losses.labels(loss.topic).inc()
            self._lost.labels(loss.topic).inc(loss.offsets)
            self.report.lost(str(loss))
        self._stopped.set(len(stopped))
        self.report.stopped = dict(stopped)

    def swept(self, rows: int) -> None:
        """Rows expired while nothing came."""
        self._rows.inc(rows)
        self.report.swept(rows)

    def failed(self, subject: str, words: str, remedy: str = "") -> None:
        """An attempt at a batch failed, of the generations or the sink; the batch waits. `remedy`: what to do."""
        self._blocked.set(1)
        self._retries.labels(subject).inc()
        self.report.failed(subject, words, remedy)

    def unblocked(self) -> None:
        """No batch waits any more."""
        self._blocked.set(0)
        self.report.blocked = None

    def watch(self, query: QueryProgress, ends: Ends) -> None:
        """Add the progress of Spark's query, and its lag; both are asked for whenever the metrics are read."""
        first, self._query, self._ends = self._ends is None, query, ends
        if first:
            self.registry.register(_QueryMetrics(lambda: self._query(), ends))

    def alive(self) -> None:
        """The loop around the query moves."""
        self._alive = self._clock()

    @property
    def live(self) -> bool:
        """Whether that loop has moved within ten minutes; before it runs, Spark may take its time to start."""
        return self._alive is None or self._clock() - self._alive <= _STUCK_SECONDS

    @property
    def ready(self) -> bool:
        """Whether the query runs, and no batch of it waits for the generations or the sink."""
        return self._alive is not None and self.live and self.report.blocked is None

    def status(self) -> dict[str, object]:
        """The answer of /status, as JSON has it."""
        return self.report.as_json(None if self._ends is None else topic_lag(self._query(), self._ends))

    def page(self) -> StatusPage:
        """The same for people."""
        return stream_page(
            self.status(), letters=self.report.sink_place.letters_command, ready=self.ready, now=time.time()
        )


def _nothing() -> None:
    """There is no progress yet."""


class _InfoMetrics(Collector):
    """Metrics whose news is in their labels: the sink, and the last error."""

    def __init__(self, report: Report) -> None:
        self._report = report

    def collect(self) -> Iterator[Metric]:
        sink_place, trouble = self._report.sink_place, self._report.trouble
        info = GaugeMetricFamily("tailrace_stream_sink_info", "The sink.", labels=["sink", "type", "location"])
        info.add_metric([sink_place.name, sink_place.type, sink_place.location], 1)
        yield info
        last_error = GaugeMetricFamily(
            "tailrace_stream_last_error_timestamp_seconds",
            "When something went wrong last, and what to do about it.",
            labels=["what", "error", "action"],
        )
        if trouble is not None:
            last_error.add_metric([trouble.what, trouble.words[:_LONGEST_LABEL], trouble.action], trouble.at)
        yield last_error
        yield from _snapshot_metrics(self._report.snapshots)


def _snapshot_metrics(rows: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Of each table the snapshot that was asked for last."""
    newest = {str(row["table"]): row for row in rows}
    for name, member, words in _SNAPSHOT_GAUGES:
        gauge = GaugeMetricFamily(f"tailrace_stream_snapshot_{name}", words, labels=["table"])
        for table, row in newest.items():
            value = row[member]
            gauge.add_metric([table], value == "reading" if member == "state" else value)
        yield gauge


class _QueryMetrics(Collector):
    def __init__(self, progress: QueryProgress, ends: Ends) -> None:
        self._progress = progress
        self._ends = ends

    def describe(self) -> list[Metric]:
        return []  # else registering would ask the query

    def collect(self) -> Iterator[Metric]:
        progress = self._progress()
        if progress is None:
            return
        rate = progress.get("processedRowsPerSecond", 0.0)  # left out where it is no number
        yield GaugeMetricFamily("tailrace_stream_rows_per_second", "Rate of the last batch.", value=rate)
        watermark = progress.get("eventTime", {}).get("watermark")
        if watermark is not None:
            seconds = datetime.fromisoformat(watermark).timestamp()
            words = "Changes taken up before this are forgotten: copies of them would be passed on."
            yield GaugeMetricFamily("tailrace_stream_watermark_timestamp_seconds", words, value=seconds)
        behind_records = GaugeMetricFamily(
            "tailrace_stream_behind_records", "Records not read yet, by topic.", labels=["topic"]
        )
        for topic, count in (topic_lag(progress, self._ends) or {}).items():
            behind_records.add_metric([topic], count)
        yield behind_records


class MetricsServer(WebServer):
    """Serves metrics, status and probes, from a thread of its own. Raises SettingsError when the address is taken."""

    def __init__(self, metrics: StreamMetrics, address: str, port: int) -> None:
        super().__init__(partial(_answer, metrics), address, port, setting="stream.metrics_address")


def _probe(name: str, well: bool) -> Answer:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "application/json", json.dumps({name: well}).encode())


def _answer(metrics: StreamMetrics, path: str, accepts: str) -> Answer:
    match path:
        case "/health/live":
            return _probe("live", metrics.live)
        case "/health/ready":
            return _probe("ready", metrics.ready)
        case "/metrics":
            return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(metrics.registry))
        case "/":
            return metrics.page().answer(accepts)
        case "/status" if "text/html" in accepts:  # a browser
            return metrics.page().answer(accepts)
        case "/status":
            return Answer(HTTPStatus.OK, "application/json", json.dumps(metrics.status(), indent=2).encode())
        case _:
            return Answer(HTTPStatus.NOT_FOUND, "text/plain", f"paths: {', '.join(PATHS)}\n".encode())


def stream_page(status: Status, *, letters: str, ready: bool, now: float) -> StatusPage:
    """What it shows at this moment, in seconds since 1970. `letters` is the command that lists dead letters."""
    problems = list(_problems(status, letters))
    sections: list[tuple[str, Rows]] = [("Problems", problems), *_sections(status, now)]
    filled = [(heading, rows) for heading, rows in sections if rows]
    return StatusPage(_state(status, ready), ready and not problems, filled)


def _state(status: Status, ready: bool) -> str:
    if (blocked := status["blocked"]) is not None:
        return f"waiting for the {blocked['what']}"
    if not ready:
        return "starting"
    copying = any(snapshot["state"] == "reading" for snapshot in status["snapshots"])
    return "copying existing rows, and following" if copying else "following"


def _problems(status: Status, letters_command: str) -> Iterator[tuple[str, str]]:
    for trouble in (status["blocked"], status["snapshot_blocked"]):
        if trouble is not None:
            yield trouble["what"], f"{trouble['words']}. What to do: {trouble['action']}"
    yield from status["stopped"].items()
    yield from status["refused_tables"].items()
    if letters := status["counts"]["dead_letters"]:
        yield "dead letters", f"{letters:,} since the start; {letters_command} has the reasons"


def _sections(status: Status, now: float) -> Iterator[tuple[str, Rows]]:
    sink, lags = status["sink"], status["behind_records"] or {}
    yield "Sink", [(name, sink[name]) for name in ("name", "type", "location") if sink[name]]
    yield "Progress", list(_progress(status, now))
    yield "Existing rows", [(row["table"], _snapshot(row)) for row in status["snapshots"]]
    yield "Records since the start, by table", [(name, _table(row)) for name, row in status["tables"].items()]
    yield "Records behind, by topic", [(topic, f"{count:,}") for topic, count in lags.items()]


def _progress(status: Status, now: float) -> Iterator[tuple[str, str]]:
    lags, last = status["behind_records"], status["last_batch"]
    yield "records behind", "unknown" if lags is None else f"{sum(lags.values()):,}"
    if last is None:
        yield "last batch", "none yet"
    else:
        age = duration_words(now - datetime.fromisoformat(last["at"]).timestamp())
        yield "last batch", f"{age} ago: {last['records']:,} records in {last['seconds']:.1f} s"
    for name, count in status["counts"].items():
        yield name.replace("_", " "), f"{count:,}"


def _table(row: Status) -> str:
    return f"{row['records']:,}; the newest was in the sink {duration_words(row['lag_seconds'])} after its write"


def _snapshot(row: Status) -> str:
    words = f"{row['state']}, {row['percent']:g} %, {row['rows']:,} rows"
    if row["seconds_left"] is not None:
        words += f", {duration_words(row['seconds_left'])} left"
    return f"{words}: {row['reason']}" if row["reason"] else words
