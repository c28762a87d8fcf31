"""A released mutation to the records of its changes, by the definitions that hold at its position."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, takewhile
from typing import Final
from uuid import UUID

from tailrace.agent.limits import Limits
from tailrace.agent.ports import Capture, Environment, Routing
from tailrace.changes.transcode import Message
from tailrace.commitlog.frames import Entry
from tailrace.commitlog.mutation import first_table
from tailrace.errors import (
    HeldError,
    NewerSchemaError,
    UnexplainedError,
    UnknownColumnError,
    UnknownTableError,
)
from tailrace.history.decode import LARGE, Definitions, messages_at, put_messages_at, source_at
from tailrace.history.schema import SchemaHistory
from tailrace.publish.record import PublishedPlaces, Record, size_of
from tailrace.state import ParkingLot, Truncation
from tailrace_common.backoff import Backoff
from tailrace_schemas.change import SCHEMA_INFERRED, TRUNCATED_LATE, Origin, Source
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.position import Position

_LOG: Final = logging.getLogger("tailrace.agent")
# Longer than Cassandra's default sync period.
_DDL_SECONDS: Final = 15.0
# A truncation is dated behind the flush of what it takes, and the place that it names is where that began.
_FLUSH_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The records of a mutation, and their bytes; those of a large one are made while they are sent."""

    size: int
    records: Sequence[Record]
    make: Callable[[Callable[[Sequence[Record]], None]], None] | None = None

    def send(self, send: Callable[[Sequence[Record]], None]) -> None:
        """Give all of them to `send`, in order."""
        if self.make is None:
            send(self.records)
        else:
            self.make(send)


class _Pieces:
    """Takes the messages of a large mutation: makes their records, and counts bytes from each beginning on."""

    def __init__(self, routing: Routing, prove: Callable[[Sequence[Message]], None]) -> None:
        self._routing = routing
        self._prove = prove
        self.size = 0
        self.send: Callable[[Sequence[Record]], None] = lambda _: None

    def begin(self) -> None:
        self.size = 0

    def put(self, messages: list[Message]) -> None:
        records = self._routing.records(messages)
        self._prove(messages)
        self.size += size_of(records)
        self.send(records)


class Translation:
    """`node` is the source of a mutation of this node, whose position is filled in.

    `pause` is called before the cluster is asked, which may take long: readers would wait for an open transaction.
    """

    def __init__(
        self,
        environment: Environment,
        limits: Limits,
        node: Source,
        capture: Capture,
        lot: ParkingLot,
        pause: Callable[[], None],
    ) -> None:
        self._capture = capture
        self._environment = environment
        self._node = node
        self._pause = pause
        self._definitions = Definitions(environment.schema.history)
        self._lot = lot
        self._backoff = Backoff(limits.waits)
        self._unreadable_until = float("-inf")
        self._ahead: tuple[Position, float] | None = None
        self._careful = 0
        self.learned = 0
        """How often the cluster's schema was read."""

    def records(self, entry: Entry) -> Outgoing:
        """The records of a mutation, in order; none for what is no table's of ours.

        Raises UnexplainedError, HeldError (a table whose changes cannot be published yet), DecodeError (damage).
        """
        self._careful = max(0, self._careful - 1)
        return self._outgoing(entry, self._messages)

    def _outgoing(self, entry: Entry, read: _Read) -> Outgoing:
        """All records of a mutation; a large one is gone through once, to see whether all can be published."""
        if len(entry.payload) < LARGE:
            messages = read(entry, None)
            records = self._environment.routing.records(messages)
            self._prove(messages)
            return Outgoing(size_of(records), records)
        pieces = _Pieces(self._environment.routing, self._prove)
        read(entry, pieces)

        def make(send: Callable[[Sequence[Record]], None]) -> None:
            pieces.send = send
            read(entry, pieces)

        return Outgoing(pieces.size, (), make)

    def _prove(self, messages: Sequence[Message]) -> None:
        if self._definitions.history is self._environment.schema.history:
            self._definitions.prove(messages)

    def plain(self, entries: Iterable[Entry], most_records: int, most_bytes: int) -> tuple[int, list[Record]]:
        """How many of the first entries are plain, and their records: about `most_records`, and within `most_bytes`
        unless it is one entry.

        A plain entry's tables all had a change in `records` before, under the present history. `records` is for all
        others. Raises ServiceError.
        """
        if self._careful:
            return 0, []
        history = self._environment.schema.history
        if self._definitions.history is not history:
            self._definitions = Definitions(history)
        node = replace(self._node, seen=self._environment.milliseconds())
        if (flushed := self._capture.durable) is not None:
            entries, sure = _of_one_kind(entries, flushed)
            node = replace(node, durable=sure)
        done, messages = self._definitions.messages(
            self._environment.transcoder, entries, node, most_records, most_bytes
        )
        try:
            return done, self._environment.routing.records(messages)
        except HeldError:
            self._careful = done  # one of them: which one shows when they come singly
            return 0, []

    def truncation(self, truncation: Truncation, *, late: bool) -> list[Record]:
        """The records of a truncation; `late`: see TRUNCATED_LATE. Raises ServiceError, HeldError."""
        history = self._environment.schema.history
        table = history.table(truncation.table_id, truncation.position)
        if table is None:
            return []
        unsure = truncation.inferred or history.inferred(truncation.table_id, truncation.position)
        source = source_at(self._node, truncation.position, self._environment.milliseconds())
        durable = (flushed := self._capture.durable) is None or truncation.position <= flushed
        flags = (SCHEMA_INFERRED if unsure else 0) | (TRUNCATED_LATE if late else 0)
        source = replace(source, count=1, durable=durable, flags=flags)
        upto = None if truncation.upto[0] < 0 else truncation.effective_position
        return self._environment.routing.truncation(table, truncation.written, source, upto)

    def parked_records(self, entry: Entry) -> Outgoing:
        """The records of a mutation that was parked, by what is known now. Raises the same."""
        return self._outgoing(entry, self._parked_messages)

    def _parked_messages(self, entry: Entry, pieces: _Pieces | None) -> list[Message]:
        try:
            return self._decode(entry, self._environment.schema.history, Origin.PARKED, pieces)
        except (UnknownTableError, DecodeError):
            return self._as_read(entry, Origin.PARKED, pieces)

    @property
    def due(self) -> bool:
        """Whether to read the cluster's schema: it may have changed, and no read has failed just now."""
        return self._environment.schema.hinted and self._environment.clock() >= self._unreadable_until

    def learn(self) -> bool:
        """Read the cluster's schema; where Cassandra does not answer, what is known goes on to hold, and health says
        so. Whether it answered."""
        environment, health = self._environment, self._environment.health
        self._pause()
        try:
            environment.schema.learn()
        except ServiceError as error:
            self._unreadable_until = environment.clock() + self._backoff.next()
            if health.degrade("schema", str(error)):
                _LOG.warning("%s", error)
            return False
        self.learned += 1
        self._backoff.reset()
        if health.recover("schema"):
            _LOG.info("Cassandra's schema can be read again: publishing goes on")
        return True

    def _messages(self, entry: Entry, pieces: _Pieces | None) -> list[Message]:
        """Those of a mutation, or none and all given to `pieces`."""
        try:
            return self._decode(entry, self._environment.schema.history, Origin.LOG, pieces)
        except UnknownTableError as error:
            if self._lot.holds(error.table_id):  # it was looked for: when it comes, those that wait are first
                raise UnexplainedError(str(error), error.table_id) from error
            if isinstance(error, NewerSchemaError) and self._comes_soon(entry):
                raise UnexplainedError(str(error)) from error
            self._require_read(error, error.table_id)
        except DecodeError as error:
            # A definition that does not fit looks like damage; only one that was read just now is believed.
            self._require_read(error, first_table(entry.payload, entry.version)[1])
        return self._as_read(entry, Origin.LOG, pieces)

    def _comes_soon(self, entry: Entry) -> bool:
        """Whether to wait for the DDL of a newer metadata epoch, rather than park.

        Cassandra 6 logs that DDL right after it switched, so it stands before the end of the next sync period. Each
        mutation waits for `_DDL_SECONDS` at most.
        """
        environment = self._environment
        if self.due:
            self.learn()
        if self._ahead is None or self._ahead[0] != entry.position:
            self._ahead = entry.position, environment.clock() + _DDL_SECONDS
        return environment.schema.tells_epochs and environment.clock() < self._ahead[1]

    def _require_read(self, error: Exception, table: UUID) -> None:
        """Read the schema. Raises UnexplainedError where that fails, or has failed just now: health says why."""
        if self._environment.clock() < self._unreadable_until or not self.learn():
            raise UnexplainedError(self._words(error, table), table) from error

    def _words(self, error: Exception, table: UUID) -> str:
        problem = self._environment.schema.problem(table)
        return f"{error}: its definition cannot be used: {problem}" if problem else str(error)

    def _as_read(self, entry: Entry, origin: Origin, pieces: _Pieces | None) -> list[Message]:
        """With the columns that were read last."""
        schema = self._environment.schema
        try:
            messages = self._decode(entry, trial := schema.as_read(entry), origin, pieces)
        except (UnknownTableError, UnknownColumnError) as error:
            raise UnexplainedError(self._words(error, error.table_id), error.table_id) from error
        schema.adopt(trial, entry)
        return messages

    def _decode(self, entry: Entry, history: SchemaHistory, origin: Origin, pieces: _Pieces | None) -> list[Message]:
        position = entry.position
        source = source_at(self._node, position, self._environment.milliseconds())
        if origin is not Origin.LOG:
            source = replace(source, origin=origin)
        if (flushed := self._capture.durable) is not None and position > flushed:
            source = replace(source, durable=False)
        if history.unsure and any(history.inferred(id, position) for id in history.unsure if id.bytes in entry.payload):
            source = replace(source, flags=SCHEMA_INFERRED)
        transcoder = self._environment.transcoder
        messages: list[Message] = []
        if pieces is None:
            messages = messages_at(history, transcoder, entry.payload, entry.version, source)
            count = len(messages)
        else:
            pieces.begin()
            count = put_messages_at(pieces.put, history, transcoder, entry.payload, entry.version, source)
        if source.flags:
            self._environment.health.count(schema_inferred=count)
        return messages


class Published:
    """What was published, as far as truncations ask.

    By this session, which began at `started` (milliseconds), behind the position where it `resumed`; by earlier ones up
    to there.
    """

    def __init__(self, capture: Capture, resumed: Position | None, started: int) -> None:
        self._capture = capture
        self._resumed = resumed
        self._started = started
        self._places = PublishedPlaces()

    def add(self, entries: Sequence[Entry]) -> None:
        """These mutations were published, in the order of the log."""
        self._places.add(entries)

    def behind(self, truncation: Truncation) -> bool:
        """Whether changes that a truncation left may be published already. Raises ServiceError."""
        table_id, upto, resumed = truncation.table_id, truncation.effective_position, self._resumed
        if self._places.may_have(table_id, upto):
            return True
        # Of one that came after our start earlier sessions have published nothing.
        is_old = truncation.at <= self._started + _FLUSH_MS
        return is_old and resumed is not None and upto < resumed and self._capture.may_hold(table_id, upto, resumed)


_Read = Callable[[Entry, _Pieces | None], list[Message]]


def _of_one_kind(entries: Iterable[Entry], flushed: Position) -> tuple[Iterable[Entry], bool]:
    """The first entries that are all durable, or all not; and which."""
    following = iter(entries)
    first = next(following, None)
    if first is None:
        return (), True
    if first.position > flushed:
        return chain((first,), following), False
    return takewhile(lambda entry: entry.position <= flushed, chain((first,), following)), True
