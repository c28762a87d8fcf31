"""Stream status: its sink, counters, what it is blocked on, and its last error."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tailrace_common.unreachable import start_or_fix
from tailrace_spark.batch.delivery import Summary
from tailrace_spark.job.execution import Execution

_LOSSES: Final = 100
_CHECK: Final = "`tailrace check` tries them all."


@dataclass(frozen=True, slots=True)
class TableProgress:
    """One table's part of a micro-batch: records, and seconds from the newest write in it to the sink's commit."""

    records: int
    lag_seconds: float


@dataclass(frozen=True, slots=True)
class Target:
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


NOWHERE = Target("", "", "", "")


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

    def __init__(self, target: Target = NOWHERE) -> None:
        self.target = target
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
        target = self.target
        return {
            "sink": {"name": target.name, "type": target.type, "location": target.location},
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
        target = self.target
        name, document = target.name or "NAME", target.document or "docs/sinks"
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
                return f"{target.letters_command} says why, or the place that {document} names; then replay"


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
