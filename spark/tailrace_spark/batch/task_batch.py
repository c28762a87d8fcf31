"""A micro-batch as tasks write it: what all of them share, and what each Kafka partition's writing came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Summary


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """A micro-batch that tasks write. `stream` is the id that its checkpoint has; `ends` are the offsets behind it."""

    stream: str
    number: int
    ends: Mapping[KafkaPartition, int]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What became of a batch's records of one Kafka partition; Spark brings it to the driver.

    `detail` is what the sink's `commit` needs of its task, such as files that count from then on. It can be pickled.
    `of_plan`: it holds for the plan of its task alone, so the partition is written again where the batch is planned
    again.
    """

    partition: KafkaPartition
    summary: Summary
    detail: object = field(default=None, repr=False)
    of_plan: bool = False


class ForDriverError(Exception):
    """A task cannot go on, and its driver knows how: it is no fault of a table or of the store."""
