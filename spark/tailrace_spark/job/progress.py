"""The status of a stream: its sink, where it is written, counters, lag, what blocks it, its last error."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from tailrace_common.unreachable import start_or_fix
from tailrace_schemas.errors import SettingsError, TailraceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary, by_partition
from tailrace_spark.jvm import execution_of
from tailrace_spark.streams.assign import LATE_SQL

log: Final = logging.getLogger("tailrace_spark")

Execution = Literal["driver", "executors"]

MANY_RECORDS: Final = 20_000
"""From so many records on tasks pay: starting them takes about a second, which the driver writes some 15,000 in."""
FEW_RECORDS: Final = 10_000
FEW_BATCHES: Final = 5
_LOSSES: Final = 100
_CHECK: Final = "`tailrace check` tries them all."
PROCESSING: Final = "Processing new data"
"""Spark's own words while a batch is being processed."""
Ends = Callable[[Collection[KafkaPartition]], Mapping[KafkaPartition, int]]
"""Where partitions end, as `tailrace_common.kafka.PartitionEnds.of`."""


class ExecutionChoice:
    """Chooses by `stream.execution`: "auto" by the size of batches, and it does not change its mind at each of them.

    From the first batch of `many` records on it is executors, until `batches` in a row had less than `few`.
    """

    def __init__(
        self,
        setting: Literal["auto", "driver", "executors"],
        *,
        large: int = MANY_RECORDS,
        few: int = FEW_RECORDS,
        batches: int = FEW_BATCHES,
    ) -> None:
        self._setting: Literal["auto", "driver", "executors"] = setting
        self._large = large
        self._few = few
        self._batches = batches
        self._small_batches = 0
        self._current: Execution = "executors" if setting == "executors" else "driver"

    def choose(self, records: int) -> Execution:
        """The execution of the next batch, which has at most so many records."""
        if self._setting != "auto":
            return self._current
        self._small_batches = self._small_batches + 1 if records < self._few else 0
        if self._current == "driver" and records >= self._large:
            self._change("executors", records)
        elif self._current == "executors" and self._small_batches >= self._batches:
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


def execution_choice(setting: Literal["auto", "driver", "executors"], *, executors: bool) -> ExecutionChoice:
    """What a sink that `executors` can write, or cannot, leaves of stream.execution. Raises SettingsError."""
    if executors or setting == "driver":
        return ExecutionChoice(setting)
    if setting == "executors":
        raise SettingsError(
            'stream.execution = "executors": this sink is written by the driver alone; set "auto" or "driver"'
        )
    return ExecutionChoice("driver")


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table's part of a micro-batch: records, and seconds from the newest write in it to the sink's commit."""

    records: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class SinkPlace:
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


NOWHERE = SinkPlace("", "", "", "")


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

    `left_out` counts the changes that filters left out, by table. `blocked_seconds` is how long the stream was blocked
    on the batch, `blocked_by` has each reason once, as the log does. `execution` says where it was written.
    `traces` are values of the records' header `traceparent`, of a stream that follows traces.
    """

    batch: int
    records: int
    summary: Summary
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


class Report:
    """Kept by the thread that runs the stream; any thread may read."""

    def __init__(self, sink_place: SinkPlace = NOWHERE) -> None:
        self.sink_place = sink_place
        self.trouble: Trouble | None = None
        self.blocked: Trouble | None = None
        """What the batch that waits failed of."""
        self.snapshot_blocked: Trouble | None = None
        self._counts: Counter[str] = Counter(
            batches=0, records=0, changes=0, rows=0, dead_letters=0, deferred=0, filtered=0, retries=0
        )
        self._tables: dict[str, TableProgress] = {}
        self._refused: dict[str, str] = {}
        self._last: tuple[Progress, float] | None = None
        self._losses: list[Trouble] = []
        self.stopped: dict[str, str] = {}
        self.snapshots: list[Mapping[str, Any]] = []

    def snapshot_waits(self, words: str, remedy: str = "") -> None:
        """An attempt at a snapshot's step failed, and it waits."""
        self.trouble = self.snapshot_blocked = self._waiting("snapshot", words, remedy)

    def lost(self, words: str) -> None:
        """Records are gone that were not read."""
        self.trouble = self._troubled("data loss", words)
        self._losses = [*self._losses, self.trouble][-_LOSSES:]

    def failed(self, subject: str, words: str, remedy: str = "") -> None:
        """An attempt at a batch failed, and the batch waits."""
        self._counts["retries"] += 1
        self.trouble = self.blocked = self._waiting(subject, words, remedy)

    def _waiting(self, subject: str, words: str, remedy: str) -> Trouble:
        return Trouble(subject, words, f"{remedy or self._action(subject)} {_CHECK}", time.time(), remedy)

    def _troubled(self, subject: str, words: str) -> Trouble:
        return Trouble(subject, words, self._action(subject), time.time())

    def wrote(self, done: Progress) -> None:
        """A batch was written."""
        summary = done.summary
        self._counts.update(
            batches=1,
            records=done.records,
            changes=summary.changes,
            rows=summary.rows,
            dead_letters=summary.dead_letters,
            deferred=summary.deferred,
            filtered=sum(done.left_out.values()),
        )
        for name, table in done.tables.items():
            previous = self._tables.get(name)
            records = table.records + (0 if previous is None else previous.records)
            self._tables[name] = TableProgress(records, table.lag_seconds)
            self._refused.pop(name, None)
        self._refused.update(dict(summary.refused))
        self._last = done, time.time()
        if summary.dead_letters:
            words = f"batch {done.batch}: {summary.dead_letters} records set aside{_why(summary)}"
            self.trouble = self._troubled("dead letters", words)
        elif summary.deferred:
            words = f"batch {done.batch}: {summary.deferred} changes deferred until the database accepts their table"
            words += _why(summary)
            self.trouble = self._troubled("deferred changes", words)

    def set_aside(self, letters: int) -> None:
        """Rows of a snapshot became dead letters."""
        self._counts["dead_letters"] += letters

    @property
    def dead_letters(self) -> int:
        """How many there are by now."""
        return self._counts["dead_letters"]

    def swept(self, rows: int) -> None:
        """Rows expired while nothing came."""
        self._counts["rows"] += rows

    def as_json(self, lag: Mapping[str, int] | None) -> dict[str, object]:
        """For /status; `lag` is in records by topic, None where nobody could tell."""
        sink_place = self.sink_place
        return {
            "sink": {"name": sink_place.name, "type": sink_place.type, "location": sink_place.location},
            "blocked": _trouble_json(self.blocked),
            "snapshot_blocked": _trouble_json(self.snapshot_blocked),
            "counts": dict(self._counts),
            "last_batch": None if self._last is None else _batch(*self._last),
            "tables": {
                name: {"records": table.records, "lag_seconds": round(table.lag_seconds, 3)}
                for name, table in sorted(dict(self._tables).items())
            },
            "refused_tables": dict(self._refused),
            "behind_records": None if lag is None else dict(lag),
            "losses": [_trouble_json(loss) for loss in self._losses],
            "stopped": dict(self.stopped),
            "snapshots": list(self.snapshots),
            "last_error": _trouble_json(self.trouble),
        }

    def _action(self, subject: str) -> str:
        sink_place = self.sink_place
        name, document = sink_place.name or "NAME", sink_place.document or "docs/sinks"
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
                return f"{sink_place.letters_command} says why, or the place that {document} names; then replay"


def _why(summary: Summary) -> str:
    """Which tables, and why."""
    return "".join(f"; {table}: {reason}" for table, reason in sorted(summary.refused.items()))


def _batch(done: Progress, finished: float) -> dict[str, object]:
    return {
        "batch": done.batch,
        "at": _time(finished),
        "records": done.records,
        "seconds": round(done.seconds, 3),
        "execution": done.execution,
        "blocked_seconds": round(done.blocked_seconds, 3),
    }


def _trouble_json(trouble: Trouble | None) -> dict[str, object] | None:
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
