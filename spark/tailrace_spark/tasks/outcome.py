"""What a task reports to the driver of one Kafka partition, and the row of a DataFrame that carries it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.micro_batch import CommitMessage

COLUMN: Final = "outcome"
SCHEMA: Final = f"{COLUMN} binary"


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """Counts of records: all, by mark, and by "keyspace.table"; there too the newest write time in microseconds.

    `left_out` counts by table what filters left out. `traces` are values of the records' header `traceparent`.
    """

    records: int = 0
    marks: Mapping[str, int] = field(default_factory=dict)
    tables: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    traces: frozenset[str] = frozenset()

    def __add__(self, other: RecordCounts) -> RecordCounts:
        marks, tables = dict(self.marks), dict(self.tables)
        for mark, count in other.marks.items():
            marks[mark] = marks.get(mark, 0) + count
        for table, (count, newest) in other.tables.items():
            earlier_count, earlier_newest = tables.get(table, (0, newest))
            tables[table] = earlier_count + count, max(earlier_newest, newest)
        left_out = dict(Counter(self.left_out) + Counter(other.left_out))
        return RecordCounts(self.records + other.records, marks, tables, left_out, self.traces | other.traces)


@dataclass(frozen=True, slots=True)
class Written:
    """The records of a Kafka partition are in the store, or ready to count."""

    message: CommitMessage
    counts: RecordCounts


@dataclass(frozen=True, slots=True)
class HereOnly:
    """Nothing of the partition is written: only the driver's process can write it, by `reason`."""

    partition: KafkaPartition
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Nothing of the partition is written: the store does not answer, or the settings refuse a record.

    Errors go to the driver as values. As exceptions they would fail the task, with a stack trace in Spark's log, and
    Spark would repeat it at once.
    """

    partition: KafkaPartition
    error: Exception


def failed(partition: KafkaPartition, error: ServiceError | SettingsError | FencedError) -> Failed:
    """What a task raised, as a value: its words and whose turn it is to act, of whatever class it is."""
    kind = next(kind for kind in (FencedError, SettingsError, ServiceError) if isinstance(error, kind))
    return Failed(partition, kind(str(error)))


Outcome = Written | HereOnly | Failed


def row_of(outcome: Outcome) -> pa.RecordBatch:
    """One row of SCHEMA."""
    return pa.RecordBatch.from_pydict({COLUMN: pa.array([pickle.dumps(outcome)], pa.binary())})


def outcomes_of(rows: Iterable[bytes]) -> list[Outcome]:
    """The outcomes of collected rows, which our own tasks have made."""
    return [pickle.loads(row) for row in rows]  # noqa: S301 - our own tasks' bytes, brought by Spark
