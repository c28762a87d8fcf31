"""Missing segments, and what that means: lost, unknown, or nothing at all (docs/contracts.md section 2).

In early mode also what a crash of the node took back. Rests on what Cassandra does by itself: it deletes a segment
without cdc data at any time. One with cdc data (it had an index) it deletes only with `cdc_block_writes: false`, when
cdc_raw is full, and then from the oldest on. Ids count up by one from the clock's milliseconds at the node's start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from tailrace.commitlog.blocks import Keys
from tailrace.segments.files import Listing, SegmentFiles, pair
from tailrace.segments.open_segment import OpenSegment
from tailrace.state import Loss, Missing, Span, ids_of, spans, united, without
from tailrace_schemas.position import Position

# A step between ids that is longer than this may be a restart of the node; a shorter one cannot, as it takes a second.
_RUN_STEP: Final = 1000
# A node's first segment has mutations of its own start; those that come later in a run are of later times.
_RUN_START_MS: Final = 60_000
# Longer without a look than this, and nobody watched: the process was stopped, or the machine slept, or was busy.
UNWATCHED_SECONDS: Final = 3.0


def unwatched_gaps(
    done: int, listing: Listing, starts_run: Callable[[int], bool], *, other_agents: bool = False
) -> tuple[Span, ...]:
    """Ids behind `done` that Cassandra may have deleted unread while nobody watched; `other_agents` may have too.

    Cassandra deletes from the oldest on, so nothing is missing behind the oldest log that cdc_raw still has; another
    agent deletes any. A step to a segment with which a run of the node began is no gap.
    """
    raw = [files.id for files in listing.segments if files.log is not None and not files.spooled]
    if not raw:
        return ()
    limit = raw[-1] if other_agents else raw[0]
    spooled = [files.id for files in listing.segments if files.spooled and done < files.id < limit]
    gaps, previous = list[Span](), done
    present = [id for id in raw if id > done] if other_agents else raw[:1]
    for id in sorted({*spooled, *present}):
        restarted = id - previous > _RUN_STEP and starts_run(id)
        if id - previous > 1 and not restarted:
            gaps.append((previous + 1, id - 1))
        previous = id
    return tuple(gaps)


def starts_run(segments: Mapping[int, SegmentFiles], keys: Keys, segment: int) -> bool:
    """Whether a run of the node began with a segment: its id is then the clock's milliseconds of that moment."""
    if (log := segments[segment].log) is None:
        return False
    try:
        with closing(OpenSegment(log, segment, 0, 0, keys)) as file:
            began = file.began() if file.begun else None
    except OSError:
        return False
    return began is not None and abs(began // 1000 - segment) < _RUN_START_MS


class Register:
    """Which segments are known to hold changes that nobody read, and what is missing of them. Any thread.

    Outlives sessions with Kafka: what vanished while Kafka was down must be told once it is back. `may_delete`: whether
    Cassandra may delete unread segments by itself. `clock` is monotonic, in seconds.
    """

    def __init__(
        self, may_delete: Callable[[], bool] = lambda: False, clock: Callable[[], float] = lambda: 0.0
    ) -> None:
        self._may_delete = may_delete
        self._clock = clock
        self._lock = threading.Lock()
        self._indexed: set[int] = set()
        self._reported: tuple[Span, ...] = ()
        self._seen: float | None = None
        self._blind = True
        self._others = False
        self._done = -1
        self.losses: tuple[Loss, ...] = ()
        """Found, and not in Kafka yet."""
        self.spared: frozenset[int] | None = None
        """Segments that must not be dropped, as what they hold is nowhere else; None: no record was read yet."""
        self.left: frozenset[int] = frozenset()
        """Segments that are published, and were left in cdc_raw."""

    def begin(self, done: int, unread: Iterable[Span], reported: Iterable[Span]) -> None:
        """A session begins, from a record by which all up to segment `done` was read."""
        with self._lock:
            self._done = done
            self._indexed |= ids_of(unread)
            self._reported = united(self._reported, reported)

    def distrust(self) -> None:
        """Another agent owned cdc_raw before this one started: it may have deleted what this one has not read."""
        self._others = True

    def see(self, listing: Listing) -> None:
        """What cdc_raw and the spool have now. Who calls this at least every few seconds has watched."""
        with self._lock:
            now = self._clock()
            self._blind |= self._seen is not None and now - self._seen > UNWATCHED_SECONDS
            self._seen = now
            self._indexed |= {files.id for files in listing.segments if files.index is not None}
            self._indexed = {id for id in self._indexed if id > self._done}

    def retract(self, first: Position, until: Position) -> None:
        """What was published behind `first` up to `until` is in the log no more."""
        with self._lock:
            self.losses = (*self.losses, Loss(Missing.RETRACTED, (first.segment, first.segment), first, until))

    def opened(self, segment: int) -> None:
        """A segment is read: up to its end it counts as unread."""
        with self._lock:
            self._done = min(self._done, segment - 1)
            self._indexed.add(segment)

    def appeared(self, index: Path) -> None:
        """An index was seen, which may be gone by now, and its segment with it."""
        self.suspect(files.id for files in pair(index.parent, [index.name]).segments)

    def suspect(self, segments: Iterable[int]) -> None:
        """These hold changes, though they have no index: they count as unread, as if they had one."""
        with self._lock:
            self._indexed |= {id for id in segments if id > self._done}

    def lose(self, segment: int, position: Position) -> None:
        """What stands in a segment behind a position is lost."""
        with self._lock:
            self._add(Missing.LOST, (segment, segment), position)

    def misses(self, listing: Listing, read: int) -> bool:
        """Whether a segment behind `read` is gone that had an index."""
        present = {files.id for files in listing.segments if files.log is not None}
        with self._lock:
            return any(id > read for id in self._indexed - present)

    def look(
        self,
        position: Position,
        read: int,
        listing: Listing,
        excused: Collection[int],
        starts_run: Callable[[int], bool],
    ) -> tuple[Loss, ...]:
        """The losses that no earlier look has found.

        Segments were read up to `position`, and to their end up to the id `read`. The `excused` ones are open or
        quarantined, and need no file any more.
        """
        self.see(listing)
        present = {files.id for files in listing.segments if files.log is not None}
        earlier = self.losses
        with self._lock:
            vanished = {id for id in self._indexed - present - set(excused) if id > read}
            self._indexed -= vanished
            for span in spans(vanished):
                self._add(Missing.LOST, span, position)
            if self._blind and any(id > self._done for id in present):
                self._blind = False
                other_agents, self._others = self._others, False
                possible = position.segment >= 0 and (self._may_delete() or other_agents)
                read_up_to = max(self._done, read)
                for gap in (
                    unwatched_gaps(read_up_to, listing, starts_run, other_agents=other_agents) if possible else ()
                ):
                    for span in without(gap, spans(excused)):
                        self._add(Missing.UNKNOWN, span, position)
        return self.losses[len(earlier) :]

    def unread(self, done: int) -> tuple[Span, ...]:
        """Segments behind `done` that have an index: `unread` of the offsets record."""
        with self._lock:
            return spans(id for id in self._indexed if id > done)

    def reported(self, done: int) -> tuple[Span, ...]:
        """What is missing behind `done`, once the present losses are reported: `reported` of the offsets record."""
        with self._lock:
            return tuple(span for span in self._reported if span[1] > done)

    def committed(self, done: int, losses: Collection[Loss]) -> None:
        """Kafka has a record by which all up to segment `done` was read, and these losses."""
        with self._lock:
            self._done = done
            self._reported = tuple(span for span in self._reported if span[1] > done)
            self.losses = tuple(loss for loss in self.losses if loss not in losses)

    def _add(self, kind: Missing, span: Span, position: Position) -> None:
        for a, b in without(span, self._reported):
            first = max(position, Position(position.epoch, a, 0))
            self.losses = (*self.losses, Loss(kind, (a, b), first, Position(position.epoch, b + 1, 0)))
            self._reported = united(self._reported, [(a, b)])
