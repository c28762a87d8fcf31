"""A partition of a topic in memory, as readers of whole topics see one."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace_common.kafka import Record


class Partition:
    """A topic of some records."""

    def __init__(self, records: list[tuple[bytes, bytes]]) -> None:
        self._end = 0
        self._records: list[Record] = []
        for record in records:
            self.append(record)

    def append(self, record: tuple[bytes, bytes]) -> None:
        """The next record."""
        self._records.append(Record(self._end, 0, *record))
        self._end += 1

    def read_to_end(self) -> Iterator[Record]:
        """What is not read yet."""
        records, self._records = self._records, []
        yield from records

    def close(self) -> None:
        """Nothing is open."""

    def __str__(self) -> str:
        return "p.schemas[0]"
