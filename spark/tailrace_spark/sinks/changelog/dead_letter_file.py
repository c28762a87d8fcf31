"""A file of dead letters, for sinks whose store has no place for them: JSON lines, one for each record of Kafka."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from tailrace_schemas.errors import ServiceError
from tailrace_spark.batch.dead_letters import log_put, page
from tailrace_spark.batch.delivery import (
    LETTER_FORMAT,
    DeadLetter,
    RecordId,
    RecordKey,
    require_letter_format,
)

REPLAYED: Final = "replayed"
"""True in a line which says that the dead letter of its record was removed."""


class DeadLetterFile:
    """A DeadLetterStore that appends; synced to disk before a call returns. The keys of what is in it stay in memory.

    One process puts dead letters; others may list and remove them meanwhile: the file is locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: set[RecordKey] | None = None

    def put(self, letters: Sequence[DeadLetter]) -> None:
        """Append those of records that are not in it yet, not even as removed.

        Raises ServiceError, and SettingsError where the file has lines of a later version: nothing is appended then.
        """
        if not letters:
            return
        try:
            with self._locked("a+b") as file:
                if self._keys is None or _is_cut(file):
                    self._keys = set(self._offsets(file))
                new = {letter.record_id.key: letter for letter in letters if letter.record_id.key not in self._keys}
                _append(file, [letter.to_json() for letter in new.values()])
        except ServiceError:
            self._keys = None
            raise
        self._keys.update(new)
        log_put(tuple(new.values()), str(self._path))

    def list(self, after: RecordId | None, limit: int) -> Sequence[DeadLetter]:
        if not self._path.exists():
            return []
        with self._locked("r+b", "read from") as file:
            offsets = {key: offset for key, offset in self._offsets(file).items() if offset is not None}
            letters = []
            for key in page(offsets, after, limit):
                file.seek(offsets[key])
                letters.append(DeadLetter.from_json(json.loads(file.readline()), str(self._path)))
            return letters

    def remove(self, letters: Sequence[DeadLetter]) -> None:
        """As DeadLetterStore says: by a line for each, as nothing is taken out of the file."""
        if not letters:
            return
        with self._locked("a+b") as file:
            self._offsets(file)
            keys = sorted(letter.record_id.key for letter in letters)
            removed = {REPLAYED: True, "format": LETTER_FORMAT}
            _append(file, [{"topic": topic, "partition": partition, "offset": offset, **removed}
                           for topic, partition, offset in keys])  # fmt: skip

    def _offsets(self, file: IO[bytes]) -> dict[RecordKey, int | None]:
        """Where the line of each record begins; None of one that was removed.

        Half a line that a crash left is cut off. Raises SettingsError where a line is of a later version.
        """
        file.seek(0)
        offsets: dict[RecordKey, int | None] = {}
        end = 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            value = json.loads(line)
            require_letter_format(value, str(self._path))
            offsets[RecordId.from_json(value).key] = None if value.get(REPLAYED) is True else end
            end += len(line)
        file.truncate(end)
        return offsets

    @contextmanager
    def _locked(self, mode: str, action: str = "written to") -> Iterator[IO[bytes]]:
        try:
            with self._path.open(mode) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # closing the file lets go of it
                yield file
        except OSError as error:
            raise ServiceError(f"dead letters cannot be {action} {self._path}: {error.strerror}") from error


def _is_cut(file: IO[bytes]) -> bool:
    """Whether another process left half a line, as one that ran into a full disk does: nothing may go behind that."""
    end = file.seek(0, os.SEEK_END)
    if not end:
        return False
    file.seek(end - 1)
    return file.read(1) != b"\n"


def _append(file: IO[bytes], lines: Sequence[Mapping[str, Any]]) -> None:
    file.seek(0, os.SEEK_END)
    file.write("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    file.flush()
    os.fsync(file.fileno())
