"""Open files of segments, so that they can be read after Cassandra has deleted them; with an index or without."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.reader import Reader
from tailrace.history.decode import holds_change
from tailrace.history.schema import SchemaHistory
from tailrace.segments.files import SegmentFiles, pair
from tailrace.segments.open_segment import OpenSegment
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.capture")
# Deleted files take disk space for as long as they are open: 2 GiB by default. Beyond, the oldest are let go.
_MOST_DELETED: Final = 64
# Those that still have a name cost a descriptor each.
_MOST_OPEN: Final = 192
_READ_BYTES: Final = 8 << 20


def _all(_: Entry) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Interest:
    """Mutations that are to be published: they begin with one of these tables (bytes of their ids), and `holds` them.

    Most mutations of other tables of the same keyspaces hold no change: a table with cdc stands beside ones without.
    """

    tables: frozenset[bytes] = frozenset()
    holds: Callable[[Entry], bool] = _all


class Unindexed:
    """Segments without an index, by id. `keep` from any thread, everything else from the run loop's.

    A segment is kept from when it appears until it has an index, is published, or has no mutation of interest (`sift`).
    `keys` open encrypted segments.
    """

    def __init__(self, keys: Keys = NO_KEYS) -> None:
        self._keys = keys
        self._lock = threading.Lock()
        self._files: dict[int, tuple[Path, int]] = {}
        self._holding: set[int] = set()
        self._first = -1
        self._judged = -1
        self.interest = Interest()
        """As of the last `sift`."""

    @property
    def segments(self) -> frozenset[int]:
        """All that are kept."""
        with self._lock:
            return frozenset(self._files)

    @property
    def holding(self) -> frozenset[int]:
        """The segments that hold mutations of interest."""
        with self._lock:
            return frozenset(self._holding)

    def keep(self, segment: int, path: Path, descriptor: int) -> None:
        """Keep the open file of a segment that has appeared; a published segment is passed over."""
        with self._lock:
            if segment < self._first or segment in self._files:
                return
            self._files[segment] = path, os.dup(descriptor)
            unsifted = [id for id in sorted(self._files) if id not in self._holding]
            deleted = [id for id in unsifted if os.fstat(self._files[id][1]).st_nlink == 0]
            for id in {*deleted[: 1 - _MOST_DELETED], *unsifted[:-_MOST_OPEN]}:
                _LOG.warning(
                    "segment %d has no index, and too many later ones wait for Kafka too: unless it gets one, its "
                    "changes are not published. Compare the tables with their copies once Kafka answers",
                    id,
                )
                self._drop(id)

    def indexed(self, segments: Collection[int]) -> None:
        """These have an index now: they are read by that."""
        with self._lock:
            for id in self._files.keys() & set(segments):
                self._drop(id)

    def sift(self, interest: Callable[[], Interest], until: Position) -> None:
        """Drop the segments before that of a position in which no mutation is of interest. They are final."""
        with self._lock:
            unsifted = sorted(id for id in self._files if id < until.segment and id not in self._holding)
        if unsifted:
            self.interest = interest()
        for id in unsifted:
            holds = self._holds(id, until.epoch)
            with self._lock:
                if holds and id in self._files:
                    self._holding.add(id)
                else:
                    self._drop(id)
        self._judged = max(self._judged, until.segment)

    def judged(self, segment: int) -> bool:
        """Whether all segments before this one were sifted."""
        with self._lock:
            unsifted = any(id < segment and id not in self._holding for id in self._files)
        return segment <= self._judged and not unsifted

    def open(self, segment: int, epoch: int, offset: int) -> OpenSegment:
        """A segment of `holding`, to be read behind a logical position."""
        with self._lock:
            path, descriptor = self._files[segment]
            file = os.fdopen(os.dup(descriptor), "rb")
        return OpenSegment(path, segment, epoch, offset, self._keys, file)

    def files(self, segments: Collection[int]) -> dict[int, tuple[Path, int]]:
        """The paths, and open files, of those of some segments that are final: they hold mutations of interest, or have
        no name any more."""
        with self._lock:
            chosen = {id: self._files[id] for id in self._files.keys() & set(segments)}
            return {
                id: (path, descriptor)
                for id, (path, descriptor) in chosen.items()
                if id in self._holding or os.fstat(descriptor).st_nlink == 0
            }

    def forget(self, until: int) -> None:
        """Segments before this one are published."""
        with self._lock:
            self._first = max(self._first, until)
            for id in [id for id in self._files if id < until]:
                self._drop(id)

    def released(self, segment: int) -> None:
        """All of this one is published, whether or not its index was ever seen: its open file is not read again."""
        with self._lock:
            self._drop(segment)

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for id in list(self._files):
                self._drop(id)

    def _holds(self, segment: int, epoch: int) -> bool:
        try:
            opened = self.open(segment, epoch, 0)
        except KeyError:  # `keep` has let it go meanwhile
            return False
        with closing(opened) as file:
            while True:
                entries, error = file.select(self.interest.tables, _READ_BYTES)
                # What is behind damage may be of interest: whoever reads the segment reports the damage.
                if error is not None or any(map(self.interest.holds, entries)):
                    return True
                if file.ended:
                    return False

    def _drop(self, segment: int) -> None:
        _, descriptor = self._files.pop(segment, (None, None))
        self._holding.discard(segment)
        if descriptor is not None:
            os.close(descriptor)


def interest_in(history: SchemaHistory) -> Interest:
    """What there is to publish by a history: a mutation may begin with any table of a keyspace that has cdc, or had."""
    keyspaces = history.cdc_keyspaces
    ids = (id.bytes for id, timeline in history.timelines.items() if timeline.newest.keyspace in keyspaces)
    return Interest(frozenset(ids), partial(holds_change, history, Reader()))


class KeptSegments:
    """Open files of segments, so that they can be read after Cassandra has deleted them. `keep` from any thread.

    At most 64 deleted ones, which matters where the agent waits for Kafka's first answer; in all other waits they are
    read. `unindexed` keeps them too, for their changes.
    """

    def __init__(self, unindexed: Unindexed | None = None) -> None:
        self.unindexed = unindexed or Unindexed()
        self._lock = threading.Lock()
        self._files: dict[int, BinaryIO] = {}
        self._paths: dict[int, Path] = {}
        self._next = -1

    def keep(self, path: Path) -> None:
        """Open a segment that has appeared; other files, known segments, and those that are gone are passed over."""
        (files,) = pair(path.parent, [path.name]).segments or (SegmentFiles(-1, None, None),)
        with self._lock:
            if files.log is None or files.id < self._next or files.id in self._files:
                return
            try:
                self._files[files.id], self._paths[files.id] = path.open("rb"), path
            except OSError as error:
                _LOG.debug("%s is gone before it could be opened: %s", path, error)
                return
            self.unindexed.keep(files.id, path, self._files[files.id].fileno())
            deleted = [id for id, file in sorted(self._files.items()) if os.fstat(file.fileno()).st_nlink == 0]
            excess = max(len(self._files) - _MOST_OPEN, 0)
            for id in {*deleted[: 1 - _MOST_DELETED], *sorted(self._files)[:excess]}:
                self._drop(id)

    def paths(self) -> dict[int, Path]:
        """The segments that are kept."""
        with self._lock:
            return dict(self._paths)

    def gone_behind(self, segment: int) -> bool:
        """Whether a later segment was begun and deleted meanwhile."""
        with self._lock:
            return any(os.fstat(file.fileno()).st_nlink == 0 for id, file in self._files.items() if id > segment)

    def take(self, segment: int) -> BinaryIO | None:
        """The open file of a segment, which is the taker's from now on; segments before it are let go."""
        with self._lock:
            file = self._files.pop(segment, None)
            self._paths.pop(segment, None)
            self._next = segment + 1
            for id in [id for id in self._files if id < segment]:
                self._drop(id)
            return file

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for id in list(self._files):
                self._drop(id)
        self.unindexed.close()

    def _drop(self, segment: int) -> None:
        self._files.pop(segment).close()
        del self._paths[segment]
