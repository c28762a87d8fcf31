"""The status of a stream: its sink, counters, lag, what blocks it, its last error; and the page that shows it."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tailrace_common.durations import duration_words
from tailrace_common.http_server import Rows, StatusPage
from tailrace_common.unreachable import start_or_fix
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary, by_partition
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.jvm import execution_of
from tailrace_spark.streams.assign import LATE_SQL

log: Final = logging.getLogger("tailrace_spark")

Execution = Literal["driver", "executors"]

MANY_RECORDS: Final = 20_000
"""From so many records on tasks pay: starting them takes about a second, which the driver writes some 15,000 in."""
FEW_RECORDS: Final = 10_000
FEW_BATCHES: Final = 5
PROCESSING: Final = "Processing new data"
"""Spark's own words while a batch is being processed."""
Status = Mapping[str, Any]
"""As /status has it."""
Ends = Callable[[Collection[KafkaPartition]], Mapping[KafkaPartition, int]]
"""Where partitions end, as `tailrace_common.kafka.PartitionEnds.of`."""


class ExecutionChoice:
    """Chooses by `stream.execution`: "auto" by the size of batches, and it does not change its mind at each of them.

    From the first batch of MANY_RECORDS on it is executors, until FEW_BATCHES in a row had less than FEW_RECORDS.
    """

    def __init__(self, setting: Literal["auto", "driver", "executors"]) -> None:
        self._setting: Literal["auto", "driver", "executors"] = setting
        self._small_batches = 0
        self._current: Execution = "executors" if setting == "executors" else "driver"

    def choose(self, records: int) -> Execution:
        """The execution of the next batch, which has at most so many records."""
        if self._setting != "auto":
            return self._current
        self._small_batches = self._small_batches + 1 if records < FEW_RECORDS else 0
        if self._current == "driver" and records >= MANY_RECORDS:
            self._change("executors", records)
        elif self._current == "executors" and self._small_batches >= FEW_BATCHES:
            self._change("driver", records)
        return self._current

    def keep_to_driver(self, reason: str) -> None:
        """Choose the driver from now on, since tasks cannot run. Raises SettingsError where it is to be executors."""
        if self._setting == "executors":
            raise SettingsError(f'stream.execution = "executors": {reason}')
        log.warning("%s. The driver writes all batches of this process", reason)
        self._setting = self._current = "driver"

    def _change(self, execution: Execution, records: int) -> None:
        self._current = execution
        log.info("batches are written by the %s from now on: this one has up to %d records", execution, records)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table's part of a micro-batch: records, and seconds from the newest write in it to the sink's commit."""

    records: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """The sink: NAME of its [sink.NAME], its type, where it writes, the document about it.

    `store` tells its store from others (checkpoint.store_of). `letters` is the command that lists its dead letters,
    where that is not `tailrace sink-letters`.
    """

    name: str
    type: str
    location: str
    document: str
    store: str = field(default="", repr=False)
    letters: str = ""

    @property
    def letters_command(self) -> str:
        """The command that lists its dead letters, as people are told it."""
        return f"`{self.letters}`" if self.letters else f"`tailrace sink-letters list {self.name or 'NAME'}`"


NO_SINK = SinkInfo("", "", "", "")


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error of `what`, in the words of the log, with what to do about it, and when it was (seconds since 1970).

    `remedy` is the part of `action` that the error itself knows; empty where it knows none.
    """

    what: str
    words: str
    action: str
    at: float
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The outcome of one micro-batch. `marks` counts records by mark, `tables` are those that it has records of.

    `ends` are the offsets behind it; None where Spark's checkpoint has a form that is not known.
    `left_out` counts the changes that filters left out, by table. `blocked_seconds` is how long the stream was blocked
    on the batch, `blocked_by` has each reason once, as the log does. `execution` says where it was written.
    `traces` are values of the records' header `traceparent`, of a stream that follows traces.
    """

    batch: int
    records: int
    summary: Summary
    ends: Offsets | None = None
    marks: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, TableProgress] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    blocked_seconds: float = 0.0
    blocked_by: tuple[str, ...] = ()
    seconds: float = 0.0
    execution: Execution = "driver"
    traces: frozenset[str] = frozenset()

    def __str__(self) -> str:
        marks = "".join(f", {count} {mark}" for mark, count in sorted(self.marks.items()))
        return (
            f"batch {self.batch}: {self.records} records, {self.summary.changes} changes merged, "
            f"{self.summary.rows} rows changed, {self.summary.dead_letters} dead letters{marks}, "
            f"{f'{sum(self.left_out.values())} filtered, ' if self.left_out else ''}"
            f"{f'{self.summary.deferred} deferred, ' if self.summary.deferred else ''}"
            f"blocked {self.blocked_seconds:.1f} s{''.join(f' for the {why}' for why in self.blocked_by)}, "
            f"took {self.seconds:.1f} s{' on executors' if self.execution == 'executors' else ''}"
        )


def action_of(sink_info: SinkInfo, subject: str) -> str:
    """What to do about an error of this subject."""
    name, document = sink_info.name or "NAME", sink_info.document or "docs/sinks"
    match subject:
        case "generations":
            return "Start Kafka, or an agent, whichever is missing."
        case "sink":
            return start_or_fix(f"the store of [sink.{name}]")
        case "topics" | "schemas":
            return start_or_fix("Kafka")
        case "snapshot":
            words = start_or_fix("Cassandra ([cluster]), Kafka or the sink")
            return f'{words} stream.snapshot = "never" leaves existing rows out, if none is copied yet.'
        case "data loss":
            return "stream.fail_on_data_loss says whether the table stops; with false what is left is read on"
        case "deferred changes":
            return f"nothing is lost: {document} says what the store refuses, and they are merged once it does not"
        case _:
            return f"{sink_info.letters_command} says why, or the place that {document} names; then replay"


def why_refused(summary: Summary) -> str:
    """Which tables, and why."""
    return "".join(f"; {table}: {reason}" for table, reason in sorted(summary.refused.items()))


def batch_json(done: Progress, finished: float) -> dict[str, object]:
    """A batch as /status has it; it was finished then, in seconds since 1970."""
    return {
        "batch": done.batch,
        "at": _time(finished),
        "records": done.records,
        "seconds": round(done.seconds, 3),
        "execution": done.execution,
        "blocked_seconds": round(done.blocked_seconds, 3),
    }


def trouble_json(trouble: Trouble | None) -> dict[str, object] | None:
    """An error as /status has it."""
    if trouble is None:
        return None
    return {"what": trouble.what, "words": trouble.words, "action": trouble.action, "at": _time(trouble.at)}


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def show_status(query: StreamingQuery | None, words: str) -> None:
    """Make these the message of `query.status`, until Spark has another.

    Where Spark's inner interface for it is missing (it is of 4.1), nothing is shown; the log has the words, too.
    """
    if query is None:  # its first batch can be taken up before `start` has returned
        return
    try:
        execution_of(query).updateStatusMessage(words)
    except (Py4JError, TypeError):
        return


def observed(heads: DataFrame) -> DataFrame:
    """The same stream of `with_head`, whose progress has the metrics `tailrace` of each batch.

    `records`, `undecodable` of them, `late` ones, and `written`: the newest write time, in microseconds.
    """
    return heads.observe(
        "tailrace",
        F.count(F.lit(1)).alias("records"),
        F.count_if(F.col("op").isNull()).alias("undecodable"),
        F.count_if(F.expr(LATE_SQL)).alias("late"),
        F.max("written").alias("written"),
    )


def last_progress(query: StreamingQuery) -> Mapping[str, Any] | None:
    """The progress of the query's last batch, while it runs, as Spark's JSON has it: PySpark makes texts of offsets."""
    try:
        last = query.lastProgress
    except Py4JError:
        return None  # Spark has ended
    progress: Mapping[str, Any] | None = None if last is None else json.loads(last.json)
    return progress


def read_to(progress: Mapping[str, Any]) -> dict[KafkaPartition, int]:
    """The offset that each partition is read up to, of Spark's progress of a query from Kafka."""
    offsets: dict[KafkaPartition, int] = {}
    for source in progress["sources"]:
        offsets |= by_partition(source.get("endOffset") or {})
    return offsets


def topic_lag(progress: Mapping[str, Any] | None, ends: Ends) -> dict[str, int] | None:
    """Records not read yet, by topic; the ends of transactions, which have offsets too, are among them.

    None where there is no progress yet, or Kafka does not answer.
    """
    if progress is None:
        return None
    reached = read_to(progress)
    try:
        now = ends(reached)
    except TailraceError:
        return None
    lag: Counter[str] = Counter()
    for partition, offset in reached.items():
        lag[partition[0]] += max(0, now.get(partition, offset) - offset)
    return dict(lag)


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
