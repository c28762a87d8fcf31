"""A file of dead letters, for sinks whose store has no place for them: JSON lines, each place in Kafka once."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from tailrace_schemas.errors import ServiceError

_Place = tuple[str, int, int]
REPLAYED: Final = "replayed"
"""What a line has that says of its place: taken in meanwhile."""


class DeadLetterFile:
    """Appends; synced to disk before a call returns. Places of what is in it stay in memory.

    One process adds letters; others may read them, and say which were taken in, meanwhile: the file is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: set[_Place] | None = None

    def add(self, letters: Sequence[Mapping[str, Any]]) -> int:
        """Append those whose place (topic, partition, offset) is not in it yet; how many. Raises ServiceError."""
        if not letters:
            return 0
        try:
            with self._locked("a+b") as file:
                if self._places is None or _is_cut(file):
                    self._places = set(_whole(file))
                new = {_place(letter): letter for letter in letters if _place(letter) not in self._places}
                _append(file, list(new.values()))
        except ServiceError:
            self._places = None
            raise
        self._places.update(new)
        return len(new)

    def waiting(self, after: _Place | None, most: int) -> list[dict[str, Any]]:
        """So many at most of the letters that were not taken in, by place, behind a place. Raises ServiceError."""
        if not self._path.exists():
            return []
        with self._locked("r+b", "read from") as file:
            lines = _whole(file)
            places = sorted(place for place in lines if after is None or place > after)
            found: list[dict[str, Any]] = []
            for place in places:
                if len(found) == most:
                    break
                if lines[place] is not None:
                    file.seek(lines[place] or 0)
                    found.append(json.loads(file.readline()))
            return found

    def taken_in(self, places: Collection[_Place]) -> None:
        """Note that what has these places was taken in. Raises ServiceError."""
        if not places:
            return
        names = ("topic", "partition", "offset")
        with self._locked("a+b") as file:
            _whole(file)
            _append(file, [{**dict(zip(names, place, strict=True)), REPLAYED: True} for place in sorted(places)])

    @contextmanager
    def _locked(self, mode: str, doing: str = "written to") -> Iterator[IO[bytes]]:
        try:
            with self._path.open(mode) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # closing the file lets go of it
                yield file
        except OSError as error:
            raise ServiceError(f"dead letters cannot be {doing} {self._path}: {error.strerror}") from error


def _is_cut(file: IO[bytes]) -> bool:
    """Whether another process left half a line, as one that ran into a full disk does: nothing may go behind that."""
    end = file.seek(0, os.SEEK_END)
    if not end:
        return False
    file.seek(end - 1)
    return file.read(1) != b"\n"


def _append(file: IO[bytes], lines: Sequence[Mapping[str, Any]]) -> None:
    file.seek(0, os.SEEK_END)
    file.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in lines).encode())
    file.flush()
    os.fsync(file.fileno())


def _whole(file: IO[bytes]) -> dict[_Place, int | None]:
    """Where the line of each place stands; None where it was taken in. What a crash has cut of a line is taken away."""
    file.seek(0)
    found: dict[_Place, int | None] = {}
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        value = json.loads(line)
        found[_place(value)] = None if value.get(REPLAYED) is True else end
        end += len(line)
    file.truncate(end)
    return found


def _place(letter: Mapping[str, Any]) -> _Place:
    return letter["topic"], letter["partition"], letter["offset"]
