"""Records of the schema history that are not committed yet, in pieces that one transaction can take."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Final
from uuid import UUID

from tailrace.history.records import BEGINNING, HistoryRecord
from tailrace_schemas.position import Position

# About so many bytes go into one transaction, and are held in memory: DDL behind them waits in the log.
_MOST: Final = 4 << 20


@dataclass(slots=True)
class UnsentRecords:
    """In the order in which they came; `most` bytes, about, are one piece.

    What the log's DDL made goes as a whole: `full` says when no more of it should be read. What a new host read of the
    cluster (at BEGINNING, before all else) may be any number of tables, and is cut.
    """

    most: int = _MOST
    _records: list[HistoryRecord] = field(default_factory=list)
    _weight: int = 0

    def __bool__(self) -> bool:
        return bool(self._records)

    def add(self, record: HistoryRecord) -> None:
        """One more."""
        self._records.append(record)
        self._weight += record.weight

    def replace(self, records: Iterable[HistoryRecord]) -> None:
        """These, and no others."""
        self._records = list(records)
        self._weight = sum(record.weight for record in self._records)

    def remove(self, committed: Collection[tuple[Position, UUID]]) -> None:
        """Kafka has the records of these positions and table ids."""
        self.replace(record for record in self._records if (record.position, record.table_id) not in committed)

    def full(self) -> bool:
        """Whether there are too many: commit, before more come."""
        return self._weight > self.most

    @property
    def piece(self) -> list[HistoryRecord]:
        """What the next transaction takes."""
        return self._records[: self._size()]

    @property
    def is_whole(self) -> bool:
        """Whether that is everything."""
        return self._size() == len(self._records)

    def sent(self) -> None:
        """The piece is committed."""
        self.replace(self._records[self._size() :])

    def _size(self) -> int:
        if self._weight <= self.most:
            return len(self._records)
        seeds = list(takewhile(lambda record: record.position == BEGINNING, self._records))
        fitting = sum(size <= self.most for size in accumulate(record.weight for record in seeds))
        return len(self._records) if fitting == len(seeds) else max(1, fitting)
