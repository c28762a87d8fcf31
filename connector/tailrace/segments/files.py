"""Files of a commit log: listed as pairs of log and index, in order of id; what an index says; logs opened for
commands.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailrace.commitlog.descriptor import Descriptor, SegmentData, parse_name, read_descriptor
from tailrace_schemas.errors import CorruptError, ServiceError, TruncatedError, UnsupportedError

# CommitLogDescriptor's names; "-CDC.idx" is an older spelling of the index's. One number alone is older than 1.2.
_LOG: Final = re.compile(r"CommitLog-(\d{1,9})-(\d{1,19})\.log")
_INDEX: Final = re.compile(r"CommitLog-(\d{1,9})-(\d{1,19})(?:_cdc|-CDC)\.idx")

OWNER_MARK: Final = ".tailrace-owner"
"""The agent's own file in cdc_raw (capture.owner); no segment to anybody."""
# No trailing newline (CommitLogSegment.writeCDCIndexFile); one is taken all the same, for files restored by hand.
_INDEX_CONTENT: Final = re.compile(rb"([0-9]{1,19})(?:\n(COMPLETED)?.*)?", re.DOTALL)
GZIP: Final = b"\x1f\x8b"
"""How a file begins that gzip made."""


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


@dataclass(frozen=True, slots=True)
class Index:
    """The content of an index. With `completed` the offset means nothing: read to the segment's end marker.

    After a crash Cassandra writes the physical file length there (CommitLogReplayer.handleCDCReplayCompletion).
    """

    offset: int
    completed: bool = False


def parse_index(content: bytes) -> Index | None:
    """The index, or None for what says nothing yet: Cassandra rewrites the file in place, so it can be seen empty.

    A prefix of the digits parses as a smaller offset, which `advance` makes harmless; `COMPLETED` counts only whole.
    """
    match = _INDEX_CONTENT.fullmatch(content)
    return None if match is None else Index(int(match[1]), match[2] is not None)


def require_end(index: Index | None, marker: int, size: int) -> None:
    """Raise TruncatedError where a segment of so many bytes ends at a sync marker before all that its index released.

    Bytes that are gone look like a clean end: pages of zeros, or a copy that was made too soon. `marker` is logical.
    """
    # After a crash Cassandra writes the file's length there (CommitLogReplayer.handleCDCReplayCompletion).
    if index is None or marker >= index.offset or (index.completed and index.offset == size):
        return
    raise TruncatedError(f"the index released {index.offset}, the segment ends here", offset=marker)


def advance(index: Index | None, read: Index | None) -> Index | None:
    """What is known after one more read: an offset never goes back, and a closed segment stays closed."""
    if index is None or read is None:
        return read if index is None else index
    return Index(max(index.offset, read.offset), index.completed or read.completed)


@contextmanager
def open_segment(path: Path) -> Iterator[SegmentData]:
    """The file's bytes at its present size, mapped read-only."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def read_named_descriptor(path: Path, data: SegmentData) -> Descriptor:
    """The descriptor; raises CorruptError where the file's name says another version or id.

    A file that is not named as a segment is taken for what its header says. Raises UnsupportedError for what gzip made.
    """
    if data[: len(GZIP)] == GZIP:
        raise UnsupportedError("compressed by gzip: gunzip it first", offset=0)
    descriptor = read_descriptor(data)
    named = parse_name(path.name)
    if named not in (None, (descriptor.version, descriptor.id)):
        raise CorruptError(f"the header is that of CommitLog-{descriptor.version}-{descriptor.id}.log", offset=0)
    return descriptor
