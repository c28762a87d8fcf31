"""What a task reports to the driver of one Kafka partition, and the row of a DataFrame that carries it."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace_common.tracing.spans import MOST_PARENTS, TRACEPARENT
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import CommitMessage
from tailrace_spark.streams.assign import SNAPSHOT_MARK
from tailrace_spark.streams.lookup import Int64s, share, unsigned

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
        tables = dict(self.tables)
        for table, (count, newest) in other.tables.items():
            earlier_count, earlier_newest = tables.get(table, (0, newest))
            tables[table] = earlier_count + count, max(earlier_newest, newest)
        marks, left_out = Counter(self.marks) + Counter(other.marks), Counter(self.left_out) + Counter(other.left_out)
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


def counts_of(records: pa.Table) -> RecordCounts:
    """Of a pyarrow Table with the columns of tailrace_spark.streams.assign; what is no change has no table."""
    marks: dict[str, int] = {}
    for chunk in records.column("marks").chunks:
        for entry in chunk.flatten().value_counts().to_pylist():
            marks[entry["values"]] = marks.get(entry["values"], 0) + entry["counts"]
    return RecordCounts(records.num_rows, marks, tables_of(records), traces=traces_of(records))


def tables_of(records: pa.Table) -> dict[str, tuple[int, int]]:
    """By "keyspace.table" the number of changes, and the newest write time in microseconds.

    By its topic where the name of that was cut: it does not say the table's.
    """
    changes = records.filter(pc.is_valid(records.column("written"))).group_by(["keyspace", "table", "topic"])
    tables: dict[str, tuple[int, int]] = {}
    for row in changes.aggregate([("written", "count"), ("written", "max")]).to_pylist():
        topic = row["topic"].partition(SNAPSHOT_MARK)[0]
        name = topic if row["table"] is None else f"{row['keyspace']}.{row['table']}"
        count, newest = tables.get(name, (0, row["written_max"]))
        tables[name] = count + row["written_count"], max(newest, row["written_max"])
    return tables


def traces_of(records: pa.Table | pa.RecordBatch) -> frozenset[str]:
    """The different values of the column `traceparent`, where there is one: the first MOST_PARENTS in order."""
    if TRACEPARENT not in records.schema.names:
        return frozenset()
    return frozenset(sorted(pc.unique(records.column(TRACEPARENT)).drop_null().to_pylist())[:MOST_PARENTS])


def all_owned(records: pa.Table, partition: int, partitions: int) -> bool:
    """Whether the keys of all changes belong to this partition of so many (docs/contracts.md 4).

    Else the topic has got more partitions: the same keys may be in others too. A truncation is of no key.
    """
    is_of_key = pc.and_(pc.is_valid(records.column("token")), pc.not_equal(records.column("op"), "truncate"))
    tokens = records.column("token").filter(is_of_key).to_numpy()
    return bool(np.all(owners(tokens, partitions) == partition))


def owners(tokens: Int64s, partitions: int) -> Int64s:
    """The partition of each token: ((token + 2^63) * partitions) >> 64."""
    return share(np.uint64(partitions), np.uint64(0), unsigned(tokens))
