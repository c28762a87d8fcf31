"""Dead letters in memory: what a sink and its tasks put, within this process; held to the contract of the topic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Final
from uuid import uuid4

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.delivery import DeadLetter, RecordId, RecordKey

_ROOMS: Final[dict[str, dict[RecordKey, tuple[int, DeadLetter]]]] = {}
_SHUT: Final[set[str]] = set()
_numbers = count()


class MemoryLetters:
    """As Letters and LetterBox. A copy that was pickled, as a task's is, has the same letters."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or uuid4().hex
        self._room = _ROOMS.setdefault(self.name, {})
        self._listed: dict[RecordKey, int] = {}

    def __reduce__(self) -> tuple[type[MemoryLetters], tuple[str]]:
        return MemoryLetters, (self.name,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MemoryLetters) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @contextmanager
    def shut(self) -> Iterator[None]:
        """While inside nothing can be put."""
        _SHUT.add(self.name)
        yield
        _SHUT.remove(self.name)

    def put(self, letters: Sequence[DeadLetter]) -> None:
        if letters and self.name in _SHUT:
            raise ServiceError("Kafka does not answer")
        for letter in letters:
            self._room[letter.record_id.key] = next(_numbers), letter

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        keys = sorted(key for key in self._room if after is None or key > after.key)[:limit]
        self._listed.update({key: self._room[key][0] for key in keys})
        return [self._room[key][1] for key in keys]

    def remove(self, letters: Sequence[DeadLetter]) -> int:
        keys = [letter.record_id.key for letter in letters]
        gone = [key for key in keys if self._room.get(key, (None,))[0] == self._listed[key]]
        for key in gone:
            del self._room[key]
        return len(gone)

    @property
    def all(self) -> Sequence[DeadLetter]:
        """Those that are there, by their places."""
        return [self._room[key][1] for key in sorted(self._room)]

    def told(self) -> Sequence[tuple[str, str]]:
        """Topic and reason of each."""
        return [(letter.record_id.topic, letter.reason) for letter in self.all]
