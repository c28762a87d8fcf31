"""A listing of cdc_raw to its segments: pairs of log and index, in order of id."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace_schemas.errors import ServiceError

# CommitLogDescriptor's names; "-CDC.idx" is an older spelling of the index's. One number alone is older than 1.2.
_LOG: Final = re.compile(r"CommitLog-(\d{1,9})-(\d{1,19})\.log")
_INDEX: Final = re.compile(r"CommitLog-(\d{1,9})-(\d{1,19})(?:_cdc|-CDC)\.idx")

OWNER_MARK: Final = ".tailrace-owner"
"""The agent's own file in cdc_raw (capture.owner); no segment to anybody."""


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """The files of one segment. A log without index holds nothing released; an index without log has lost it.

    `spooled`: its log stands in the spool, so it is final. `doubles` are files of the same segment in the other of the
    two directories, the log first.
    """

    id: int
    log: Path | None
    index: Path | None
    spooled: bool = False
    doubles: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The file name that messages show."""
        path = self.log or self.index
        return str(self.id) if path is None else path.name


@dataclass(frozen=True, slots=True)
class Listing:
    """Segments by ascending id (the number's order, not the name's), and names that are none of Cassandra's."""

    segments: tuple[SegmentFiles, ...]
    foreign: tuple[str, ...]


def pair(directory: Path, names: Iterable[str]) -> Listing:
    """The listing of `names` in `directory`."""
    logs: dict[int, Path] = {}
    indexes: dict[int, Path] = {}
    foreign = []
    for name in names:
        if match := _LOG.fullmatch(name):
            logs[int(match[2])] = directory / name
        elif match := _INDEX.fullmatch(name):
            indexes[int(match[2])] = directory / name
        elif not name.startswith(OWNER_MARK):
            foreign.append(name)
    ids = sorted(logs.keys() | indexes.keys())
    return Listing(tuple(SegmentFiles(id, logs.get(id), indexes.get(id)) for id in ids), tuple(sorted(foreign)))


def list_segments(directory: Path) -> Listing:
    """The listing of the directory now. Raises OSError when it cannot be read.

    What is no file (or a link to one) is none of Cassandra's, whatever its name, nor is the index of such a log.
    """
    with os.scandir(directory) as entries:
        names = {entry.name: _is_file(entry) for entry in entries}
    listing = pair(directory, (name for name, is_file in names.items() if is_file))
    non_files = sorted(name for name, is_file in names.items() if not is_file)
    if not non_files:
        return listing
    ids = {files.id for files in pair(directory, non_files).segments if files.log is not None}
    indexes = (files.index.name for files in listing.segments if files.id in ids and files.index is not None)
    return Listing(
        tuple(files for files in listing.segments if files.id not in ids),
        tuple(sorted((*listing.foreign, *non_files, *indexes))),
    )


def list_cdc_raw(directory: Path) -> Listing:
    """The listing of the agent's own directory now. Raises ServiceError that names the setting."""
    try:
        return list_segments(directory)
    except OSError as error:
        raise ServiceError(
            f"cannot list {directory}: {error.strerror}; is agent.cdc_raw_directory the node's cdc_raw_directory, and "
            "may this user read and write it?"
        ) from error


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle
        return False
