"""Counts of a task's records, by numpy and Arrow."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tailrace_common.tracing.spans import MOST_PARENTS, TRACEPARENT
from tailrace_spark.streams.assign import SNAPSHOT_MARK
from tailrace_spark.tasks.outcome import RecordCounts

_SIGN = np.uint64(1 << 63)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


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


def owners(tokens: npt.NDArray[np.int64], partitions: int) -> npt.NDArray[np.uint64]:
    """The partition of each token: ((token + 2^63) * partitions) >> 64, the product in two halves."""
    unsigned, count = tokens.astype(np.int64, copy=False).view(np.uint64) ^ _SIGN, np.uint64(partitions)
    high, low = unsigned >> _HALF, unsigned & _LOW
    shares: npt.NDArray[np.uint64] = (high * count + (low * count >> _HALF)) >> _HALF
    return shares
