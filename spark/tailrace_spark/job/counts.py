"""Numbers of a micro-batch's records: by table, by mark, and where its partitions end."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.progress import TableProgress


def ends_of(records: Any) -> dict[KafkaPartition, int]:
    """The offset behind each partition's last record."""
    last = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(row["topic"], row["partition"]): row["offset_max"] + 1 for row in last.to_pylist()}


def progress_of(records: Any, now: float) -> dict[str, TableProgress]:
    """By "keyspace.table"; records that are no changes belong to none."""
    changes = records.filter(pc.is_valid(records.column("written"))).group_by(["keyspace", "table"])
    return {
        f"{row['keyspace']}.{row['table']}": TableProgress(
            row["written_count"], max(0.0, now - row["written_max"] / 1e6)
        )
        for row in changes.aggregate([("written", "count"), ("written", "max")]).to_pylist()
    }


def marks_of(marks: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for chunk in marks.chunks:
        for entry in chunk.flatten().value_counts().to_pylist():
            counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    return counts
