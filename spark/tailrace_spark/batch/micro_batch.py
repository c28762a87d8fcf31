"""A micro-batch as a sink is told of it, and what the writing of each of its shares came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary

WHOLE: Final[KafkaPartition] = ("", -1)
"""The share with the records of all Kafka partitions."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch to be written, in a share for each Kafka partition; `ends` are the offsets behind it.

    `stream` is the id that its checkpoint has. `here`: it is one share, WHOLE, which this process
    writes; it alone has truncations, and a writer may alter tables. `fences`: shares of earlier batches may
    still be written, here or by executors, and none of them counts from now on. `again`: it has dead letters' changes,
    beside a stream that may write. They have their own places and write times, and no images: the rows before and
    after are those of another time.
    """

    stream: str
    number: int
    ends: Mapping[KafkaPartition, int] = field(default_factory=dict)
    here: bool = False
    fences: bool = True
    again: bool = False


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What became of a share; Spark brings it to the driver.

    `detail` is what the sink's `commit` needs of its writer, such as files that count from then on. It can be pickled.
    """

    share: KafkaPartition
    summary: Summary
    detail: object = field(default=None, repr=False)


def partition_counts(ends: Mapping[KafkaPartition, int]) -> dict[str, int]:
    """The number of each topic's partitions: Spark plans offsets for all of them."""
    counts: dict[str, int] = {}
    for topic, partition in ends:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return counts
