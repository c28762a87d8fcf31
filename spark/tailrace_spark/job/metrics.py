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

from tailrace_common.http_server import Answer, StatusPage, WebServer
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.offsets import Loss
from tailrace_spark.job.progress import (
    NO_SINK,
    Ends,
    Progress,
    SinkInfo,
    TableProgress,
    Trouble,
    action_of,
    batch_json,
    stream_page,
    topic_lag,
    trouble_json,
    why_refused,
)

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
_SHOWN_LOSSES: Final = 100
_CHECK: Final = "`tailrace check` tries them all."
_COUNTS: Final = ("batches", "records", "changes", "rows", "dead_letters", "deferred", "filtered", "retries")


class StreamMetrics:
    """Counts what a Stream does, for Prometheus in a registry of its own, and for /status.

    Any thread may read, the stream's writes.
    """

    def __init__(self, sink_info: SinkInfo = NO_SINK, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._alive: float | None = None
        self._query: QueryProgress = _nothing
        self._ends: Ends | None = None
        self.sink_info = sink_info
        self.trouble: Trouble | None = None
        self.blocked: Trouble | None = None
        """What the batch that waits failed of."""
        self.snapshot_blocked: Trouble | None = None
        self.stopped: dict[str, str] = {}
        self.snapshots: list[Mapping[str, Any]] = []
        self._counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._tables: dict[str, TableProgress] = {}
        self._refused_tables: dict[str, str] = {}
        self._last: tuple[Progress, float] | None = None
        self._troubles_of_losses: list[Trouble] = []
        self.registry = CollectorRegistry()
        self.registry.register(_Asked(self))
        ProcessCollector(registry=self.registry)
        self._measure()

    def _measure(self) -> None:
        def counter(name: str, words: str, *labels: str) -> Counter:
            return Counter(f"tailrace_stream_{name}", words, labels, registry=self.registry)

        def gauge(name: str, words: str, *labels: str) -> Gauge:
            return Gauge(f"tailrace_stream_{name}", words, labels, registry=self.registry)

        self._batches = counter("batches", "Micro-batches written to the sink.")
        self._executors = gauge("executors", "1 where tasks on executors wrote the last batch.")
        self._records = counter("records", "Records read and written, by table.", "table")
        self._merged = counter("changes_merged", "Changes that the sink merged or wrote.")
        self._rows = counter("rows_changed", "Rows whose state changed by them.")
        self._letters = counter("dead_letters", "Dead letters of the sink.")
        words = "Deferred changes: the sink stores them until the database accepts their table."
        self._deferred = counter("deferred_changes", words)
        words = "Batches with dead letters or deferred changes of a table, by table."
        self._refused = counter("refused", words, "table")
        self._filtered = counter("filtered", "Changes that filters left out, by table.", "table")
        self._retries = counter("retries", "Attempts at a batch that failed, by what failed.", "what")
        self._marked = counter("marked", "Records with a mark, such as late.", "mark")
        self._blocked_seconds = counter("blocked_seconds", "Seconds for which batches were blocked.")
        self._blocked = gauge("blocked", "1 while a batch waits for the generations, Kafka or the sink.")
        words = "Losses of a topic: deleted, created again, or trimmed before it was read."
        self._losses = counter("losses", words, "topic")
        self._lost = counter("lost_offsets", "Offsets that are known to be lost.", "topic")
        self._stopped = gauge("stopped_topics", "Topics that are left out since they lost records.")
        words = "Seconds from a batch's start to its commit."
        self._seconds = Histogram("tailrace_stream_batch_seconds", words, buckets=_BUCKETS, registry=self.registry)
        self._lag = gauge("lag_seconds", "Seconds from a table's newest write to its commit.", "table")
        words = "When the last batch was written; before the first one, when the stream began."
        self._last_commit = gauge("last_commit_timestamp_seconds", words)
        self._last_commit.set_to_current_time()

    def wrote(self, done: Progress) -> None:
        """A batch was written."""
        self._count(done, done.summary)
        for name in done.summary.refused:
            self._refused.labels(name).inc()
        for mark, count in done.marks.items():
            self._marked.labels(mark).inc(count)
        for name, count in done.left_out.items():
            self._filtered.labels(name).inc(count)
        for name, table in done.tables.items():
            self._records.labels(name).inc(table.records)
            self._lag.labels(name).set(table.lag_seconds)
            previous = self._tables.get(name)
            records = table.records + (0 if previous is None else previous.records)
            self._tables[name] = TableProgress(records, table.lag_seconds)
            self._refused_tables.pop(name, None)
        self._refused_tables.update(dict(done.summary.refused))
        self._executors.set(done.execution == "executors")
        self._seconds.observe(done.seconds)
        self._blocked_seconds.inc(done.blocked_seconds)
        self._last_commit.set_to_current_time()
        self._last = done, time.time()

    def _count(self, done: Progress, summary: Summary) -> None:
        self._batches.inc()
        self._merged.inc(summary.changes)
        self._deferred.inc(summary.deferred)
        self._counts["batches"] += 1
        self._counts["records"] += done.records
        self._counts["changes"] += summary.changes
        self._counts["deferred"] += summary.deferred
        self._counts["filtered"] += sum(done.left_out.values())
        self.swept(summary.rows)
        self.set_aside(summary.dead_letters)
        if summary.dead_letters:
            words = f"batch {done.batch}: {summary.dead_letters} records set aside{why_refused(summary)}"
            self.trouble = self._troubled("dead letters", words)
        elif summary.deferred:
            words = f"batch {done.batch}: {summary.deferred} changes deferred until the database accepts their table"
            self.trouble = self._troubled("deferred changes", words + why_refused(summary))

    def set_aside(self, letters: int) -> None:
        """So many rows became dead letters, of a batch or of a snapshot."""
        self._letters.inc(letters)
        self._counts["dead_letters"] += letters

    @property
    def dead_letters(self) -> int:
        """How many there are by now."""
        return self._counts["dead_letters"]

    def swept(self, rows: int) -> None:
        """So many rows changed: by a batch, or since they expired while nothing came."""
        self._rows.inc(rows)
        self._counts["rows"] += rows

    def lost(self, losses: Iterable[Loss], stopped: Mapping[str, str]) -> None:
        """Kafka has deleted what was not read; `stopped` has the words of each topic that is left out since."""
        for loss in losses:
            self._losses.labels(loss.topic).inc()
            self._lost.labels(loss.topic).inc(loss.offsets)
            self.trouble = self._troubled("data loss", str(loss))
            self._troubles_of_losses = [*self._troubles_of_losses, self.trouble][-_SHOWN_LOSSES:]
        self._stopped.set(len(stopped))
        self.stopped = dict(stopped)

    def failed(self, subject: str, words: str, remedy: str = "") -> None:
        """An attempt at a batch failed, of the generations or the sink; the batch waits. `remedy`: what to do."""
        self._blocked.set(1)
        self._retries.labels(subject).inc()
        self._counts["retries"] += 1
        self.trouble = self.blocked = self._waiting(subject, words, remedy)

    def unblocked(self) -> None:
        """No batch waits any more."""
        self._blocked.set(0)
        self.blocked = None

    def snapshot_waits(self, words: str, remedy: str = "") -> None:
        """An attempt at a snapshot's step failed, and it waits."""
        self.trouble = self.snapshot_blocked = self._waiting("snapshot", words, remedy)

    def _waiting(self, subject: str, words: str, remedy: str) -> Trouble:
        action = f"{remedy or action_of(self.sink_info, subject)} {_CHECK}"
        return Trouble(subject, words, action, time.time(), remedy)

    def _troubled(self, subject: str, words: str) -> Trouble:
        return Trouble(subject, words, action_of(self.sink_info, subject), time.time())

    def watch(self, query: QueryProgress, ends: Ends) -> None:
        """Add the progress of Spark's query, and its lag; both are asked for whenever the metrics are read."""
        self._query, self._ends = query, ends

    def of_query(self) -> Iterator[Metric]:
        """Spark's progress of the query, and its lag; none before there is a query."""
        progress = self._query()
        if progress is None or self._ends is None:
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
        return self._alive is not None and self.live and self.blocked is None

    def status(self) -> dict[str, object]:
        """The answer of /status, as JSON has it. `behind_records` is by topic, None where nobody can tell."""
        sink_info = self.sink_info
        return {
            "sink": {"name": sink_info.name, "type": sink_info.type, "location": sink_info.location},
            "blocked": trouble_json(self.blocked),
            "snapshot_blocked": trouble_json(self.snapshot_blocked),
            "counts": dict(self._counts),
            "last_batch": None if self._last is None else batch_json(*self._last),
            "tables": {
                name: {"records": table.records, "lag_seconds": round(table.lag_seconds, 3)}
                for name, table in sorted(dict(self._tables).items())
            },
            "refused_tables": dict(self._refused_tables),
            "behind_records": None if self._ends is None else topic_lag(self._query(), self._ends),
            "losses": [trouble_json(loss) for loss in self._troubles_of_losses],
            "stopped": dict(self.stopped),
            "snapshots": list(self.snapshots),
            "last_error": trouble_json(self.trouble),
        }

    def page(self) -> StatusPage:
        """The same for people."""
        return stream_page(self.status(), letters=self.sink_info.letters_command, ready=self.ready, now=time.time())


def _nothing() -> None:
    """There is no progress yet."""


class _Asked(Collector):
    """Metrics that are made when somebody asks: of the sink, the last error, snapshots, and Spark's query."""

    def __init__(self, metrics: StreamMetrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []  # else registering would ask the query

    def collect(self) -> Iterator[Metric]:
        sink_info, trouble = self._metrics.sink_info, self._metrics.trouble
        info = GaugeMetricFamily("tailrace_stream_sink_info", "The sink.", labels=["sink", "type", "location"])
        info.add_metric([sink_info.name, sink_info.type, sink_info.location], 1)
        yield info
        last_error = GaugeMetricFamily(
            "tailrace_stream_last_error_timestamp_seconds",
            "When something went wrong last, and what to do about it.",
            labels=["what", "error", "action"],
        )
        if trouble is not None:
            last_error.add_metric([trouble.what, trouble.words[:_LONGEST_LABEL], trouble.action], trouble.at)
        yield last_error
        yield from _snapshot_metrics(self._metrics.snapshots)
        yield from self._metrics.of_query()


def _snapshot_metrics(rows: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    """Of each table the snapshot that was asked for last."""
    newest = {str(row["table"]): row for row in rows}
    for name, member, words in _SNAPSHOT_GAUGES:
        gauge = GaugeMetricFamily(f"tailrace_stream_snapshot_{name}", words, labels=["table"])
        for table, row in newest.items():
            value = row[member]
            gauge.add_metric([table], value == "reading" if member == "state" else value)
        yield gauge


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
