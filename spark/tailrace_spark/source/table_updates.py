"""Whole table updates out of micro-batches, which end anywhere: for sinks that write all of an update at once.

An update belongs to the batch that has its first change. The rest of it, after that batch's end, is read
ahead and left out of the next batch. So where a batch ends, or how often it is delivered, makes no difference.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from tailrace_schemas.change import Change, Op, Origin, record_times
from tailrace_schemas.digest import mutation_digest
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Delivered, Piece, Transaction
from tailrace_spark.streams.lookup import StreamTable

log = logging.getLogger("tailrace_spark")

WAIT_SECONDS: Final = 300.0
"""Longest wait for the rest of an update. In a transaction it comes within its time-out; without transactions
(agent.delivery) an agent that died between two changes of an update publishes all of it once more, when it is back."""

WriteTimes = Callable[[Change], Iterable[int]]
"""The times in microseconds for which a sink needs a change's streams."""

ReadOn = Callable[[KafkaPartition, int], tuple[Iterable[Piece], int | None]]
"""Reads a partition from an offset on: some pieces, and the offset to go on from; None at the partition's end."""

# Who wrote: one producer's records of a partition are in its log's order, and no two of its mutations are mixed.
_Writer = tuple[str, int, str, bool]
_Mutation = tuple[Position, Origin]


@dataclass(slots=True)
class OpenUpdate:
    """An update that is not whole yet; `changes` by index. A truncation, and what has no source, is one by itself."""

    changes: dict[int, Delivered] = field(default_factory=dict)
    first: int | None = None
    last: int | None = None

    @property
    def whole(self) -> bool:
        """Whether none of its changes is missing."""
        return self.first is not None and self.last is not None and len(self.changes) == self.last - self.first + 1

    def add(self, delivered: Delivered) -> None:
        """Take one of its changes."""
        source = delivered.change.source
        if source is None or delivered.change.op is Op.TRUNCATE:
            self.changes, self.first, self.last = {0: delivered}, 0, 0
            return
        self.changes[source.index] = delivered
        if source.begins_update:
            self.first = source.index
        if source.ends_update:
            self.last = source.index

    def in_order(self) -> list[Delivered]:
        """Its changes, in the order of the mutation."""
        return [self.changes[index] for index in sorted(self.changes)]


@dataclass(slots=True)
class _WriterUpdate(OpenUpdate):
    """Of one mutation of its writer."""

    mutation: _Mutation | None = None


class Updates:
    """Puts changes together to updates; each partition's in the order of its offsets."""

    def __init__(self) -> None:
        self._open: dict[_Writer, _WriterUpdate] = {}
        self._seen: set[_Writer] = set()
        self.left_out = 0

    @property
    def waiting(self) -> set[KafkaPartition]:
        """The partitions with updates that are not whole."""
        return {(topic, partition) for topic, partition, _, _ in self._open}

    def feed(self, delivered: Delivered) -> Iterator[list[Delivered]]:
        """The updates that this change makes whole.

        One that another mutation of the same writer follows is taken for whole without what is missing, which cannot
        be decoded. What begins with another change than an update's first, at a partition's beginning, was written
        with the batch before, and is left out.
        """
        source = delivered.change.source
        if source is None or delivered.change.op is Op.TRUNCATE:
            yield [delivered]
            return
        writer = _writer(delivered)
        mutation = (source.position, source.origin)
        open_update = self._open.get(writer)
        if open_update is not None and open_update.mutation != mutation:
            yield self._give_up(writer)
            open_update = None
        if open_update is None:
            if not source.begins_update and writer not in self._seen:
                self.left_out += 1
                return
            open_update = self._open[writer] = _WriterUpdate(mutation=mutation)
        self._seen.add(writer)
        open_update.add(delivered)
        if open_update.whole:
            yield self._open.pop(writer).in_order()

    def whole(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, each with the updates that its changes make whole."""
        for piece in pieces:
            complete = [change for delivered in piece.changes for update in self.feed(delivered) for change in update]
            yield Piece(tuple(complete), piece.dead_letters)

    def feed_rest(self, delivered: Delivered) -> Iterator[list[Delivered]]:
        """As `feed`, for changes behind the batch's end: those of other updates are not taken."""
        source = delivered.change.source
        if source is None:
            return
        writer = _writer(delivered)
        open_update = self._open.get(writer)
        if open_update is None:
            return
        if open_update.mutation != (source.position, source.origin):
            yield self._give_up(writer)
        else:
            yield from self.feed(delivered)

    def give_up(self) -> Iterator[list[Delivered]]:
        """All that are not whole, as they are."""
        for writer in list(self._open):
            yield self._give_up(writer)

    def _give_up(self, writer: _Writer) -> list[Delivered]:
        changes = self._open.pop(writer).in_order()
        record_id, source = changes[0].record_id, changes[0].change.source
        log.warning(
            "%s, partition %d, offset %d: an update of %d changes lacks some of them: they cannot be decoded or never "
            "came. It is written without them",
            record_id.topic,
            record_id.partition,
            record_id.offset,
            0 if source is None else source.count,
        )
        return changes


class WholeUpdates:
    """The pieces of one micro-batch for an UpdateSink, as often as they are asked for.

    `pieces` gives the batch's own, each partition in offset order; `ends` has the offset behind each partition's last
    record of it. Asking for them raises ServiceError while the rest of an update is not in Kafka, WAIT_SECONDS long.
    """

    def __init__(
        self,
        pieces: Callable[[], Iterable[Piece]],
        ends: Mapping[KafkaPartition, int],
        read_on: ReadOn,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pieces = pieces
        self._ends = ends
        self._read_on = read_on
        self._clock = clock
        self._missed: float | None = None

    def __iter__(self) -> Iterator[Piece]:
        updates = Updates()
        yield from updates.whole(self._pieces())
        for update in self._rest(updates):
            yield Piece(tuple(update))
        if updates.left_out:
            log.debug("%d changes were written with the batch before", updates.left_out)

    def _rest(self, updates: Updates) -> Iterator[list[Delivered]]:
        for partition in sorted(updates.waiting):
            offset: int | None = self._ends[partition]
            while offset is not None and partition in updates.waiting:
                pieces, offset = self._read_on(partition, offset)
                for piece in pieces:
                    for delivered in piece.changes:
                        yield from updates.feed_rest(delivered)
        if not updates.waiting:
            return
        self._missed = self._clock() if self._missed is None else self._missed
        if self._clock() - self._missed < WAIT_SECONDS:
            waiting = ", ".join(f"{topic}/{partition}" for topic, partition in sorted(updates.waiting))
            raise ServiceError(f"the rest of a mutation is not in Kafka yet: {waiting}")
        yield from updates.give_up()


def with_streams(piece: Piece, table: StreamTable, times: WriteTimes) -> Piece:
    """The piece with the streams of all write times of its changes, looked up together."""
    lookups: list[tuple[int, int, int]] = []
    for index, delivered in enumerate(piece.changes):
        assigned_time = None if delivered.assignment is None else record_times(delivered.change)[0]
        lookups += [
            (index, delivered.change.token, written)
            for written in sorted(times(delivered.change))
            if written != assigned_time
        ]
    if not lookups:
        return piece
    indexes, tokens, written = zip(*lookups, strict=True)
    assigned = table.assign(np.array(tokens, dtype=np.int64), np.array(written, dtype=np.int64))
    assignments: dict[int, list[tuple[int, Assignment]]] = {}
    for index, write_time, generation, stream in zip(
        indexes, written, assigned.generations, assigned.streams, strict=True
    ):
        assignments.setdefault(index, []).append((write_time, Assignment(int(generation), bytes(stream))))
    changes = [
        replace(delivered, others=tuple(assignments[index])) if index in assignments else delivered
        for index, delivered in enumerate(piece.changes)
    ]
    return replace(piece, changes=tuple(changes))


def _writer(delivered: Delivered) -> _Writer:
    source = delivered.change.source
    if source is None:
        raise ValueError("a change without a source has no writer")
    return delivered.record_id.topic, delivered.record_id.partition, source.host, source.origin is Origin.REPLAY


def with_transactions(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces of `table_updates`, in which updates stand whole, each change with its transaction.

    Truncations, rows of a snapshot, and what has no source have none.
    """
    for piece in pieces:
        changes = [marked for update in _updates_of(piece.changes) for marked in _marked(update)]
        yield replace(piece, changes=tuple(changes))


def _updates_of(changes: Iterable[Delivered]) -> Iterator[list[Delivered]]:
    """The changes in runs of one update. One that was published twice is two: its indexes begin again."""
    update: list[Delivered] = []
    for delivered in changes:
        if update and not _goes_on(update[-1], delivered):
            yield update
            update = []
        update.append(delivered)
    if update:
        yield update


def _goes_on(last: Delivered, delivered: Delivered) -> bool:
    one_source, source = last.change.source, delivered.change.source
    if one_source is None or source is None or source.index <= one_source.index:
        return False
    return last.update == delivered.update


def _marked(update: Sequence[Delivered]) -> Iterator[Delivered]:
    first, last = update[0].change.source, update[-1].change.source
    if first is None or last is None or update[0].change.op is Op.TRUNCATE or first.origin is Origin.SNAPSHOT:
        yield from update
        return
    count = last.index - first.index + 1
    is_whole = first.begins_update and last.ends_update and len(update) == count
    digest = mutation_digest(delivered.change.digest for delivered in update)
    begins = min(delivered.record_id.offset for delivered in update)
    for delivered in update:
        source = delivered.change.source
        if source is not None:
            index, ends = source.index - first.index, delivered is update[-1]
            transaction = Transaction(digest, index, count if is_whole else None, begins, ends)
            yield replace(delivered, transaction=transaction)
