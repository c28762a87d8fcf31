"""One segment file to a report: whether every checksum in it is right, and all that its index promises is there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal

from tailrace.commitlog.blocks import Keys
from tailrace.commitlog.descriptor import SegmentData
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import first_cursor, sections
from tailrace.errors import WrongKeyError
from tailrace.segments.files import Index, open_segment, parse_index, read_named_descriptor, require_end
from tailrace_schemas.errors import DecodeError, ServiceError, TruncatedError, UnsupportedError


class Status(StrEnum):
    """What was found."""

    OK = "ok"
    WRITTEN = "being written"  # what is not whole is behind what the index released: Cassandra may be at it
    GONE = "gone"  # deleted before it was read
    UNREAD = "not read"  # a version, compressor, cipher or key that is not at hand, or no file that can be read
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """What was found in a file. `end` is the logical position behind the last frame, `reason` empty where all is ok."""

    file: str
    status: Status
    reason: str = ""
    size: int = 0
    sections: int = 0
    frames: int = 0
    end: int = 0


@dataclass(slots=True)
class _Count:
    """What was read so far; `marker` is the logical position of the next sync marker."""

    sections: int = 0
    frames: int = 0
    end: int = 0
    marker: int = 0


def verify_segment(path: Path, keys: Keys) -> FileReport:
    """Verify every checksum of a file, header to end; no schema is needed, and nothing is decoded.

    What an index beside it has not released may be incomplete. What one has released must be there.
    """
    count = _Count()
    size = 0
    try:
        if not path.is_file() and path.exists():
            raise OSError(0, "not a file")  # opening a pipe would wait for somebody to write into it
        # The index is read first: what it promises is in the file by then.
        index = _index_of(path)
        with open_segment(path) as data:
            size = len(data)
            status, reason = _judge(path, data, index, keys, count)
    except FileNotFoundError:
        status, reason = Status.GONE, "deleted meanwhile"
    except OSError as error:
        named = f"{Path(error.filename).name}: " if error.filename not in (None, str(path)) else ""
        status, reason = Status.UNREAD, f"{named}cannot be read: {error.strerror}"
    return FileReport(
        file=path.name,
        status=status,
        reason=reason,
        size=size,
        sections=count.sections,
        frames=count.frames,
        end=count.end,
    )


def _index_of(path: Path) -> Index | None:
    try:
        return parse_index(path.with_name(f"{path.stem}_cdc.idx").read_bytes())
    except FileNotFoundError:
        return None


def _judge(path: Path, data: SegmentData, index: Index | None, keys: Keys, count: _Count) -> tuple[Status, str]:
    try:
        _walk(path, data, keys, count)
        require_end(index, count.marker, len(data))
    except UnsupportedError as error:
        return Status.UNREAD, error.rule
    except DecodeError as error:
        if isinstance(error, WrongKeyError) and not count.sections:
            # Damage at the very first block is rarer than the key of another cluster.
            return Status.UNREAD, str(error)
        unreleased = index is not None and not index.completed and count.marker >= index.offset
        young = isinstance(error, TruncatedError) and count.marker == 0
        status = Status.WRITTEN if unreleased or (young and index is None) else Status.DAMAGED
        return status, str(error)
    return Status.OK, ""


def _walk(path: Path, data: SegmentData, keys: Keys, count: _Count) -> None:
    descriptor = read_named_descriptor(path, data)
    count.end = count.marker = first_cursor(descriptor).logical
    for section in sections(descriptor, data, keys=keys):
        for frame in frames(section):
            count.frames += 1
            count.end = frame.end
        count.sections += 1
        count.marker = section.end.logical


def _start_worker() -> None:
    # Ctrl-C reaches every process of the terminal; the command ends the workers.
    signal(SIGINT, SIG_IGN)


@contextmanager
def reports(paths: list[Path], keys: Keys, jobs: int) -> Iterator[Iterator[FileReport]]:
    """The reports of files in their order, made by at most `jobs` processes, as they come.

    Raises ServiceError where a process dies (as when memory runs out).
    """
    jobs = min(jobs, len(paths))
    if jobs <= 1:
        yield (verify_segment(path, keys) for path in paths)
        return
    # Spawned: the parent may have threads. Keys go through a pipe, never into a command line.
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_start_worker)
    try:
        yield pool.map(partial(verify_segment, keys=keys), paths)
    except BrokenProcessPool:
        raise ServiceError("a process that verified segments died; try fewer with --jobs") from None
    finally:
        pool.shutdown(cancel_futures=True)
