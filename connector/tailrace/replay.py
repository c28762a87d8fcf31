"""Segments once more: kept files decoded again, by position and write time, and put out as changes a second time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, Protocol
from uuid import UUID

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.blocks import NO_KEYS, Keys
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table
from tailrace.errors import HeldError, UnknownTableError
from tailrace.history.decode import messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace.publish.record import Record, size_of
from tailrace.segments.files import Index, SegmentFiles
from tailrace.segments.open_segment import OpenSegment, index_of
from tailrace_common.kafka import Pace
from tailrace_schemas.avro.decode import written_of
from tailrace_schemas.change import Source
from tailrace_schemas.errors import DecodeError
from tailrace_schemas.position import Position

_READ: Final = 256


class Outlet(Protocol):
    """Where the changes of replayed mutations go."""

    def put(self, entry: Entry) -> int:
        """Put out the changes of a mutation; how many. Raises UnknownTableError, DecodeError, HeldError, ServiceError.

        Where it raises one of the first three, nothing of the mutation was put.
        """

    def finish(self) -> None:
        """Everything was put: see to it that it has arrived. Raises ServiceError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is replayed: mutations behind `since` up to `until` (segment id, logical offset).

    Of them the changes whose write time (microseconds) is at least `earliest` and below `latest`, of the tables with
    these ids. None: no bound.
    """

    since: tuple[int, int] = (-1, 0)
    until: tuple[int, int] = ((1 << 63) - 1, 1 << 31)
    earliest: int | None = None
    latest: int | None = None
    tables: frozenset[UUID] | None = None

    @property
    def timed(self) -> bool:
        """Whether write times matter."""
        return self.earliest is not None or self.latest is not None

    def has_time(self, written: int) -> bool:
        """Whether a write time is within the bounds."""
        return (self.earliest is None or written >= self.earliest) and (self.latest is None or written < self.latest)

    def has_table(self, entry: Entry) -> bool:
        """Whether a mutation may hold something of the tables; seen without decoding it."""
        if self.tables is None:
            return True
        count, table_id = first_table(entry.payload, entry.version)
        return count != 1 or table_id in self.tables


@dataclass(slots=True)
class Replayed:
    """What came of a replay so far. `left_out`: reason -> (first position, number of mutations)."""

    mutations: int = 0
    changes: int = 0
    segments: int = 0
    left_out: dict[str, tuple[str, int]] = field(default_factory=dict)
    damaged: list[str] = field(default_factory=list)


def replay(
    segments: Iterable[SegmentFiles],
    outlet: Outlet,
    bounds: Bounds,
    replayed: Replayed,
    *,
    epoch: int = 1,
    keys: Keys = NO_KEYS,
    progress: Callable[[SegmentFiles, int], None] = lambda _files, _offset: None,
) -> None:
    """Put out every mutation of the segments that the bounds allow, in order, and count them in `replayed`.

    Only what an index releases, where there is one. What no definition explains is left out, and what cannot be
    published, as it is too large. A damaged segment is read up to the damage; others go on. `progress` gets the logical
    offset reached in a segment. Raises ServiceError, OSError.
    """
    for files in segments:
        if files.log is None or not bounds.since[0] <= files.id <= bounds.until[0]:
            continue
        replayed.segments += 1
        with closing(OpenSegment(files.log, files.id, epoch, keys=keys)) as segment:
            for entry in _entries(segment, index_of(files), replayed):
                position = (entry.position.segment, entry.position.offset)
                if position > bounds.until:
                    break
                progress(files, position[1])
                if position > bounds.since:
                    _put(entry, outlet, replayed)
    outlet.finish()


def _entries(segment: OpenSegment, index: Index | None, replayed: Replayed) -> Iterator[Entry]:
    # Up to where the index releases the segment; all of it where that is closed, or was not kept.
    released = None if index is None or index.completed else index.offset
    while True:
        entries, error = segment.read(_READ, released)
        yield from entries
        error = error or segment.missing_end(index)
        if error is not None:
            replayed.damaged.append(f"{error}; nothing behind it was read")
            return
        if not entries:
            return


def _put(entry: Entry, outlet: Outlet, replayed: Replayed) -> None:
    replayed.mutations += 1
    try:
        replayed.changes += outlet.put(entry)
    except (UnknownTableError, DecodeError, HeldError) as error:
        # The frame's checksum was right: a definition is missing or does not fit, or Kafka or the registry refuses the
        # change. The agent has parked it too. The next frame may do.
        location, count = replayed.left_out.get(str(error), (f"{entry.file}:{entry.position.offset}", 0))
        replayed.left_out[str(error)] = location, count + 1


class Transactions(Protocol):
    """A transactional way into Kafka; see tailrace_common.kafka.KafkaTransactions."""

    def open(self) -> None: ...

    def close(self) -> None: ...

    def send(self, record: Record) -> None: ...

    def fits(self, records: Iterable[Record]) -> bool: ...

    def end(self) -> None: ...


class Routing(Protocol):
    """Messages to records; see publish.routing.Router."""

    def records(self, messages: Iterable[Message]) -> list[Record]: ...


class KafkaOutlet:
    """Into the tables' topics, as the agent writes them, in transactions that end at a mutation's boundary.

    `source` names host, datacenter and origin. A transaction ends at `most` changes, after `seconds`, or at as many
    bytes as `pace` allows, by which the transactions go. `clock` is monotonic, in seconds, `milliseconds` is wall-clock
    time.
    """

    def __init__(
        self,
        transactions: Transactions,
        routing: Routing,
        transcoder: Transcoder,
        history: SchemaHistory,
        source: Source,
        bounds: Bounds,
        *,
        pace: Pace,
        clock: Callable[[], float],
        milliseconds: Callable[[], int],
        limit: int = 5000,
        seconds: float = 1.0,
    ) -> None:
        self._transactions = transactions
        self._routing = routing
        self._transcoder = transcoder
        self._history = history
        self._source = source
        self._bounds = bounds
        self._clock = clock
        self._milliseconds = milliseconds
        self._limit = limit
        self._seconds = seconds
        self._pace = pace
        self._sent = self._size = 0
        self._began = 0.0
        self._done: Position | None = None
        self.committed: Position | None = None
        """Everything up to here is in Kafka."""

    def put(self, entry: Entry) -> int:
        """Send the changes of a mutation; commit when it is time."""
        records = self._routing.records(self._messages(entry)) if self._bounds.has_table(entry) else []
        self._make_room(records)
        for record in records:
            if not self._sent:
                self._began = self._clock()
            self._transactions.send(record)
            self._sent += 1
        self._done = entry.position
        if self._sent >= self._limit or (self._sent and self._clock() - self._began >= self._seconds):
            self.finish()
        return len(records)

    def finish(self) -> None:
        """Commit what was sent."""
        if self._sent:
            self._transactions.end()
        self._sent = self._size = 0
        self.committed = self._done

    def _make_room(self, records: Sequence[Record]) -> None:
        """The records of a mutation fit into the transaction, or have one that lasts as long as they need, in batches
        that their topics take."""
        size, fits = size_of(records), self._transactions.fits(records)
        if self._sent and (self._size + size > self._pace.limit or not fits):
            self.finish()
        if not self._sent and size and not (self._pace.suits(size) and fits):
            self._transactions.close()
            self._transactions.open()
        self._size += size

    def _messages(self, entry: Entry) -> list[Message]:
        source = source_at(self._source, entry.position, self._milliseconds())
        messages = messages_at(self._history, self._transcoder, entry.payload, entry.version, source)
        if self._bounds.tables is not None:
            messages = [message for message in messages if message.table.id in self._bounds.tables]
        if self._bounds.timed:
            messages = [message for message in messages if self._bounds.has_time(written_of(message.value))]
        return messages
