"""Consumer lag: the end offsets of the topics, less those of the last finished batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tailrace_schemas.errors import TailraceError
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.sink_progress import by_partition

Ends = Callable[[Collection[KafkaPartition]], Mapping[KafkaPartition, int]]
"""Where partitions end, as `tailrace_common.kafka.PartitionEnds.of`."""


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
