"""How far a subscription is in its log, by Kafka partition. Of its snapshot `tailrace_spark.snapshot.progress` says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The offset that is read next, and the partition's end when somebody last looked; None: nobody did."""

    next: int
    end: int | None = None

    @property
    def behind(self) -> int | None:
        """Records that are not in the sink yet; the marks of transactions have offsets too."""
        return None if self.end is None else max(0, self.end - self.next)


def total_behind(progress: Iterable[PartitionProgress]) -> int | None:
    """Records that are not in the sink yet; None where nobody has looked."""
    counts = [partition.behind for partition in progress]
    numbers = [count for count in counts if count is not None]
    return sum(numbers) if numbers else None
