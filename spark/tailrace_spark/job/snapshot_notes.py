"""Snapshots beside a stream's checkpoint: how far they are, which the stream alone writes, and what commands ask of it.

Both may happen at any time, on any file system. Progress is written into two files by turns, so that one is whole
whatever dies. A request is a file of its own, which the stream removes once its progress has it.
"""

from __future__ import annotations

import logging
from json import JSONDecodeError
from operator import attrgetter
from typing import Final, Protocol

from tailrace_schemas.errors import CorruptError, SettingsError
from tailrace_spark.job.checkpoint_files import Folder
from tailrace_spark.snapshot.progress import (
    Request,
    Snapshots,
    request_from_json,
    snapshots_from_json,
)

log = logging.getLogger("tailrace_spark")

REQUESTS: Final = "snapshot-requests"
"""The folder of requests, in `<checkpoint>/tailrace`."""
_NAMES: Final = ("snapshots-0.json", "snapshots-1.json")
_SUFFIX: Final = ".json"


class Notes(Protocol):
    """How far the snapshots of a stream are, and what is asked of it, wherever that is kept."""

    def read(self) -> Snapshots:
        """The newest progress. Raises SettingsError where it cannot be read."""

    def write(self, value: Snapshots) -> None:
        """Keep it; it counts once this returns. Raises ServiceError, FencedError."""

    def requested(self) -> list[tuple[str, Request]]:
        """The requests that nobody has taken, each with a name."""

    def take(self, name: str) -> None:
        """Remove a request that progress has."""


class SnapshotNotes:
    """The notes of one stream. `files` are those of `<checkpoint>/tailrace`, `requests` those of its REQUESTS."""

    def __init__(self, files: Folder, requests: Folder, checkpoint: str) -> None:
        self._files = files
        self._requests = requests
        self._unreadable: set[str] = set()
        self.checkpoint = checkpoint

    def read(self) -> Snapshots:
        """The newest progress. Raises SettingsError where none of the files can be read, and there is one.

        It does so where another version wrote one of them: that may be the newer one.
        """
        values: list[Snapshots] = []
        problems: list[str] = []
        are_whole = False
        for name in _NAMES:
            text = self._files.read(name)
            if text is None:
                continue
            try:
                values.append(snapshots_from_json(text))
            except CorruptError as error:
                problems.append(f"{name}: {error}")
                # One that was cut off in a crash is no JSON; the other one is whole.
                are_whole = are_whole or not isinstance(error.__cause__, JSONDecodeError)
        if problems and (are_whole or not values):
            raise SettingsError(
                f"stream.checkpoint {self.checkpoint}: tailrace/{'; '.join(problems)}. Install the version that wrote "
                f"it, or remove {' and '.join(_NAMES)}: snapshots then begin again"
            )
        return max(values, key=attrgetter("sequence"), default=Snapshots())

    def write(self, value: Snapshots) -> None:
        """Keep it, in place of the older of the two."""
        self._files.write(_NAMES[value.sequence % len(_NAMES)], value.to_json())

    def ask(self, request: Request) -> None:
        """Leave a request for the stream."""
        self._requests.write(f"{int(request.asked * 1000):015}-{request.id}{_SUFFIX}", request.to_json())

    def requested(self) -> list[tuple[str, Request]]:
        """The requests that nobody has taken, with the names of their files, in the order in which they were made.

        Those that cannot be read stay where they are.
        """
        requests: list[tuple[str, Request]] = []
        for name in sorted(self._requests.names()):
            text = self._requests.read(name) if name.endswith(_SUFFIX) and not name.startswith(".") else None
            if text is None:
                continue
            try:
                requests.append((name, request_from_json(text)))
            except CorruptError as error:
                if name not in self._unreadable:  # it may be written just now, or be for a later version
                    log.warning("the request %s/%s cannot be read and waits: %s", REQUESTS, name, error)
                self._unreadable.add(name)
        return requests

    def take(self, name: str) -> None:
        """Remove a request that progress has."""
        self._requests.delete(name)
