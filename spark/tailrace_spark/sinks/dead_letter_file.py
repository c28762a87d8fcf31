"""A file of dead letters, for sinks whose store has no place for them: JSON lines, each place in Kafka once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tailrace_schemas.errors import ServiceError

_Place = tuple[str, int, int]


class DeadLetterFile:
    """Appends; synced to disk before `add` returns. One process writes it. Places of what is in it stay in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: set[_Place] | None = None

    def add(self, letters: Sequence[Mapping[str, Any]]) -> int:
        """Append those whose place (topic, partition, offset) is not in it yet; how many. Raises ServiceError."""
        if not letters:
            return 0
        try:
            with self._path.open("a+b") as file:
                if self._places is None:
                    self._places = _read(file)
                new = {_place(letter): letter for letter in letters if _place(letter) not in self._places}
                file.write("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in new.values()).encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self._places = None
            raise ServiceError(f"dead letters cannot be written to {self._path}: {error.strerror}") from error
        self._places.update(new)
        return len(new)


def _read(file: Any) -> set[_Place]:
    """The places in a file; a last line that a crash has cut is taken away."""
    file.seek(0)
    places: set[_Place] = set()
    end = 0
    for line in file:
        if not line.endswith(b"\n"):
            break
        places.add(_place(json.loads(line)))
        end += len(line)
    file.truncate(end)
    return places


def _place(letter: Mapping[str, Any]) -> _Place:
    return letter["topic"], letter["partition"], letter["offset"]
