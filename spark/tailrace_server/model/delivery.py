"""How far a subscription is by Kafka partition, what its sink has beyond that, and a worker's fair portion."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tailrace_schemas.topics import KafkaPartition

Offsets = Mapping[KafkaPartition, int]

_MOST: Final = 100


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
    counts = [count for partition in progress if (count := partition.behind) is not None]
    return sum(counts) if counts else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """As its worker kept it last. Times are in milliseconds since 1970, by the database's clock; None: not yet.

    `complete_to`: the sink has all that the topics had then. `letters_since` is of the first of its dead letters.
    """

    written: int | None = None
    complete_to: int | None = None
    letters: int = 0
    letters_since: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What became of a sink since it was told last.

    `letters` are new dead letters. `complete_seconds` ago the topics had no more than the sink has now.
    """

    wrote: bool = False
    letters: int = 0
    complete_seconds: float | None = None


class Completeness:
    """Tells since when a sink lacks something, by where topics ended at earlier times."""

    def __init__(self) -> None:
        self._seen: list[tuple[float, Offsets]] = []
        self._spacing = 0.0
        self._complete: float | None = None

    def at(self, asked: float, offsets: Offsets, ends: Offsets) -> float | None:
        """The last time at which the topics had no more than is written up to `offsets`; None where it is not known.

        `ends` is where partitions end, of a question asked at `asked`; empty where nobody answered.
        """
        if ends:
            if self._seen and (self._seen[-1][1] == ends or self._is_close()):
                self._seen.pop()
            self._seen.append((asked, dict(ends)))
            if len(self._seen) > _MOST:  # the longer it lacks something, the less exact
                self._seen = self._seen[::2]
                self._spacing = self._seen[1][0] - self._seen[0][0]
        while self._seen and _reached(offsets, self._seen[0][1]):
            self._complete = self._seen.pop(0)[0]
        if not self._seen:
            self._spacing = 0.0
        return self._complete

    def _is_close(self) -> bool:
        """Whether the last time is nearer to the one before it than others are."""
        return len(self._seen) > 1 and self._seen[-1][0] - self._seen[-2][0] < self._spacing


def _reached(offsets: Offsets, ends: Offsets) -> bool:
    return all(offsets.get(partition, end) >= end for partition, end in ends.items())


def fair_portion(subscriptions: int, limits: Collection[int]) -> int:
    """The most that a worker should run, as far as its limit allows; together they can run all, or as many as fit."""
    for index, limit in enumerate(sorted(limits)):
        portion = -(-subscriptions // (len(limits) - index))
        if portion <= limit:
            return portion
        subscriptions -= limit  # others run what this one has no slots for
    return max(limits)
