"""What a host's cdc_raw says about positions: which segments are there, and how many mutations lie between two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tailrace.commitlog.encryption import Keys
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import sections
from tailrace.publish.moves import Between
from tailrace.segments.directory import SegmentFiles, list_segments
from tailrace.segments.files import open_segment, read_named_descriptor
from tailrace.segments.open_segment import header_checksum
from tailrace.state.resume import SegmentKey
from tailrace_schemas.errors import DecodeError, ServiceError, SettingsError
from tailrace_schemas.position import Position


def present(directory: Path) -> tuple[SegmentKey, ...]:
    """Every segment in the directory: id and header checksum. Raises ServiceError."""
    try:
        return tuple((files.id, header_checksum(files.log)) for files in _logs(directory) if files.log is not None)
    except OSError as error:
        raise _unreadable(directory, error) from error


def between(directory: Path, before: Position, after: Position, keys: Keys) -> Between:
    """The mutations behind the lower of two positions of a log, up to and including the higher. Raises ServiceError.

    On the way back they are whole only where the segment is there in which reading is to begin.
    """
    low, high = sorted((before, after))
    mutations, segments, complete = 0, [], low is before
    for files in _logs(directory):
        complete |= files.id == low.segment
        if files.log is None or not low.segment <= files.id <= high.segment:
            continue
        count = 0
        try:
            for end in _ends(files.log, keys):
                count += (low.segment, low.offset) < (files.id, end) <= (high.segment, high.offset)
        except DecodeError:
            complete = False
        except OSError as error:
            raise _unreadable(files.log, error) from error
        if count:
            mutations += count
            segments.append(files.id)
    return Between(mutations, tuple(segments), complete)


def require_boundary(directory: Path, target: Position, keys: Keys) -> None:
    """Raise SettingsError where the target's segment is there and the position is not behind one of its mutations."""
    files = next((files for files in _logs(directory) if files.id == target.segment), None)
    if files is None or files.log is None or target.offset == 0:
        return
    nearest = 0
    try:
        for end in _ends(files.log, keys):
            if end == target.offset:
                return
            if end > target.offset:
                break
            nearest = end
    except DecodeError as error:
        raise SettingsError(f"{target}: {files.name} is damaged before it: {error}") from error
    except OSError as error:
        raise _unreadable(files.log, error) from error
    raise SettingsError(
        f"{target} is not behind a mutation of {files.name}; the last one before it ends at {target.segment}:{nearest}"
    )


def _ends(path: Path, keys: Keys) -> Iterator[int]:
    """The logical position behind each mutation of a segment."""
    with open_segment(path) as data:
        if not data:
            return
        for section in sections(read_named_descriptor(path, data), data, keys=keys):
            for frame in frames(section):
                yield frame.end


def _logs(directory: Path) -> tuple[SegmentFiles, ...]:
    try:
        return tuple(files for files in list_segments(directory).segments if files.log is not None)
    except OSError as error:
        raise _unreadable(directory, error) from error


def _unreadable(path: Path, error: OSError) -> ServiceError:
    return ServiceError(f"cannot read {path}: {error.strerror}; run this as a user that may, such as the agent's")
