"""Whether a segment gets nothing more: by its index, by later segments, by what Cassandra did to its file."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tailrace.commitlog.encryption import Keys
from tailrace.segments.directory import SegmentFiles, pair
from tailrace.segments.index import Index, parse_index
from tailrace.segments.open_segment import OpenSegment, is_genuine


def is_final(
    segment: OpenSegment, index: Index | None, segments: Mapping[int, SegmentFiles], keys: Keys, *, early: bool
) -> bool:
    """Whether all of an open segment stands in its file: `segments` are those of cdc_raw and its spool, `index` is what
    its own says. In early mode a successor that has begun, or a file without a name, says so too."""
    own_files = segments.get(segment.id)
    if own_files is not None and own_files.spooled:
        return True
    later = (files for id, files in segments.items() if id > segment.id and files.index is not None)
    if any(is_genuine(files) for files in later):
        return True
    if index is not None and index.completed:
        return True
    if segment.unlinked_by_cassandra:
        return True
    return early and (segment.unlinked or _has_successor(segment.id, segments, keys))


def has_begun(path: Path, keys: Keys) -> bool:
    """Whether a section stands in a segment's file."""
    (files,) = pair(path.parent, [path.name]).segments
    try:
        with closing(OpenSegment(path, files.id, 0, 0, keys)) as segment:
            return segment.begun
    except OSError:
        return False


def index_of(files: SegmentFiles) -> Index | None:
    """What a segment's index says now; None where it is gone, or says nothing. Raises OSError, which names it."""
    if files.index is None:
        return None
    try:
        return parse_index(files.index.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(files.index)) from error


def _has_successor(segment: int, segments: Mapping[int, SegmentFiles], keys: Keys) -> bool:
    """Whether the next segment has begun: the last marker of this one stands by then."""
    later = (files.log for id, files in sorted(segments.items()) if id > segment and files.log is not None)
    path = next(later, None)
    return path is not None and has_begun(path, keys)
