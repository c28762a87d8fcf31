"""How far a subscription is: by Kafka partition, and by token range while a snapshot is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tailrace_schemas.topics import KafkaPartition


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The offset that is read next, and the partition's end when somebody last looked; None: nobody did."""

    next: int
    end: int | None = None

    @property
    def behind(self) -> int | None:
        """Records that are not in the sink yet; the marks of transactions have offsets too."""
        return None if self.end is None else max(0, self.end - self.next)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProgress:
    """A token range (start, end] of a snapshot.

    `position` is the agents' place in the log from which on the stream holds what the snapshot may lack. `last_key`
    is the serialized partition key that was read last, `last_offsets` where the topics ended when the range was begun.
    """

    start: int
    end: int
    stage: str
    snapshot_version: int
    position: str | None = None
    last_key: bytes | None = None
    last_offsets: Mapping[KafkaPartition, int] = field(default_factory=dict)


def total_behind(progress: Iterable[PartitionProgress]) -> int | None:
    """Records that are not in the sink yet; None where nobody has looked."""
    counts = [partition.behind for partition in progress]
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None
