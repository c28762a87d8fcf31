"""Numbers of a micro-batch's records: by table, by mark, and where its partitions end."""

from __future__ import annotations

from typing import Any

from tailrace_schemas.topics import KafkaPartition


def ends_of(records: Any) -> dict[KafkaPartition, int]:
    """The offset behind each partition's last record."""
    last = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(row["topic"], row["partition"]): row["offset_max"] + 1 for row in last.to_pylist()}


def marks_of(marks: Any) -> dict[str, int]:
    counts: dict[str, int] = {}
    for chunk in marks.chunks:
        for entry in chunk.flatten().value_counts().to_pylist():
            counts[entry["values"]] = counts.get(entry["values"], 0) + entry["counts"]
    return counts
