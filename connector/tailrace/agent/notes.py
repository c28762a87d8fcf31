"""What a commit writes beside the changes, into internal topics: losses, progress, schema changes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from tailrace.agent.limits import Limits
from tailrace.agent.ports import Environment, ProgressLog, Publisher
from tailrace.history.events import encode_event, event_key
from tailrace.publish.reports import cause_of, decode_loss, loss_id, loss_record, loss_words
from tailrace.state import Loss, Resume
from tailrace_common.kafka import Record
from tailrace_schemas.errors import CorruptError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.progress import Progress, encode_progress, progress_key
from tailrace_schemas.topics import Internal

_LOG: Final = logging.getLogger("tailrace.agent")
# How often an acknowledgement is looked for, and how long such a look may take, in seconds.
_LOOK_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 0.005
IDLE: Final = 6
"""A host is idle once its position has not moved for so many times `seconds`; it then waits so long between records."""
_NOTHING: Final = Position(1, -1, 0)
"""The position of a host that has read no change yet: before its log's first segment."""


class Losses:
    """What this host has lost: recorded once in `.progress`, and shown in health until somebody acknowledges it.

    Outlives sessions with Kafka. One thread.
    """

    def __init__(self, environment: Environment, host: str) -> None:
        self._environment = environment
        self._host = host
        self._log: ProgressLog | None = None
        self._looked = environment.clock()
        self._open: dict[bytes, str] = {}  # those that nobody has acknowledged: words by key
        self._recorded: dict[bytes, str] = {}  # all that `.progress` has: words by key

    def begin(self, publisher: Publisher) -> None:
        """A session begins. The first one reads what earlier processes have recorded. Raises ServiceError."""
        if self._log is not None:
            return
        log = publisher.progress()
        self._read(log.read_to_end())
        self._log = log
        self._show()
        if self._open:
            _LOG.warning(
                "nobody has acknowledged %d losses of this host: `tailrace losses list` shows them", len(self._open)
            )

    def look(self) -> None:
        """Notice acknowledgements, from time to time, while there is something to acknowledge."""
        now = self._environment.clock()
        if self._log is None or now - self._looked < _LOOK_SECONDS:
            return
        self._looked = now
        if not self._open:
            self._log.close()  # it connects again when it is needed
            return
        try:
            self._read(_available(self._log))
        except ServiceError as error:
            _LOG.debug("acknowledgements are looked for again by another connection: %s", error)
            self._log.close()
            return
        self._show()

    def tell(self, losses: Iterable[Loss]) -> None:
        """Show what was found just now."""
        for loss in self._new(losses):
            self._environment.health.degrade(cause_of(loss_id(loss)), loss_words(str(loss)))

    def records(self, losses: Sequence[Loss]) -> list[tuple[bytes, bytes]]:
        """Keys and values for `.progress`, for the transaction of the next offsets record."""
        if not (losses := self._new(losses)):
            return []
        environment = self._environment
        tables = [str(table) for table in environment.schema.history.tracked() if environment.routing.publishes(table)]
        now = environment.milliseconds()
        return [loss_record(environment.cluster, self._host, loss, now, tables) for loss in losses]

    def committed(self, losses: Sequence[Loss]) -> None:
        """These are in Kafka."""
        losses = self._new(losses)
        for loss in losses:
            self._open[self._key(loss)] = self._recorded[self._key(loss)] = str(loss)
        for kind, count in Counter(loss.kind.value for loss in losses).items():
            self._environment.health.count(**{kind: count})
        self._show()

    def close(self) -> None:
        """End the connection."""
        if self._log is not None:
            self._log.close()
        self._log = None

    def _new(self, losses: Iterable[Loss]) -> list[Loss]:
        """Those that are not recorded: a segment that stays, and is read again, has the same retraction each time."""
        return [loss for loss in losses if self._recorded.get(self._key(loss)) != str(loss)]

    def _key(self, loss: Loss) -> bytes:
        return f"{self._environment.cluster}/{self._host}/{loss_id(loss)}".encode()

    def _read(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.key is not None:
                self._note(record.key, record.value)

    def _note(self, key: bytes, value: bytes | None) -> None:
        try:
            loss = None if value is None else decode_loss(key, value)
        except CorruptError as error:
            _LOG.warning("a loss record is skipped, as it cannot be read: %s", error)
            return
        if loss is not None and (loss.cluster, loss.host) != (self._environment.cluster, self._host):
            return
        if loss is not None:
            self._recorded[key] = loss.words
        if loss is not None and loss.acknowledged is None:
            self._open[key] = loss.words
            self._environment.health.degrade(loss.cause, loss_words(loss.words))
        elif self._open.pop(key, None) is not None:
            id = key.decode().removeprefix(f"{self._environment.cluster}/{self._host}/")
            self._environment.health.recover(cause_of(id))
            _LOG.info("loss %s was acknowledged", id)

    def _show(self) -> None:
        self._environment.health.gauge(unacknowledged_losses=len(self._open))


def _available(log: ProgressLog) -> Iterator[Record]:
    while (record := log.poll(_POLL_SECONDS)) is not None:
        yield record


class ProgressNotes:
    """When a host's progress is published: readers of quiet tables get on, and idle hosts cost next to nothing.

    At most one record each `seconds` while the position moves, and for a while after.

    The last move is complete only by a later record. `clock` is monotonic, in seconds; `milliseconds` is wall-clock
    time. `name` is the node's, or its address, for people.
    """

    def __init__(
        self,
        cluster: str,
        host: str,
        seconds: float,
        clock: Callable[[], float],
        milliseconds: Callable[[], int],
        name: str | None = None,
    ) -> None:
        self._cluster = cluster
        self._host = host
        self._seconds = seconds
        self._clock = clock
        self._milliseconds = milliseconds
        self._name = name
        self._told: tuple[Position | None, bool, Position | None] = None, False, None
        self._at: float | None = None
        self._moved = 0.0
        self._complete_to: int | None = None

    def complete(self, milliseconds: int) -> None:
        """Everything that had been released by then is in the next transaction, or in earlier ones."""
        self._complete_to = milliseconds

    def due(self, position: Position | None, caught_up: bool, durable: Position | None = None) -> bool:
        """Whether it is time for a record that says so."""
        if self._at is None:
            return True
        idle = self._seconds * IDLE
        news = (position, caught_up, durable) != self._told or self._clock() - self._moved < idle
        return self._clock() - self._at >= (self._seconds if news else idle)

    def record(self, resume: Resume, caught_up: bool, durable: Position | None) -> tuple[bytes, bytes] | None:
        """Key and value of the record that goes with an offsets record, if one is due. `durable`: up to where
        Cassandra has flushed what was read; None for all of it.

        It counts as published from now on: a failed transaction ends this object's session.
        """
        position = resume.position
        if not self.due(position, caught_up, durable):
            return None
        if position != self._told[0]:
            self._moved = self._clock()
        self._told, self._at = (position, caught_up, durable), self._clock()
        parked = sum(len(lot.offsets) for lot in resume.parked)
        published = _NOTHING if position is None else position
        flushed = published if position is None or durable is None else min(position, durable)
        progress = Progress(
            self._cluster,
            self._host,
            published,
            flushed,
            self._milliseconds(),
            caught_up,
            parked,
            len(resume.quarantined),
            self._complete_to,
            self._name,
        )
        return progress_key(self._cluster, self._host), encode_progress(progress)


class CommitNotes:
    """What is to be recorded with the next commit of a session."""

    def __init__(self, environment: Environment, limits: Limits, host: str, losses: Losses) -> None:
        self._environment = environment
        self._host = host
        self._losses = losses
        self._progress = ProgressNotes(
            environment.cluster,
            host,
            limits.progress_seconds,
            environment.clock,
            environment.milliseconds,
            environment.name,
        )

    def complete(self, milliseconds: int) -> None:
        """Everything that had been released by then is in the next transaction, or in earlier ones."""
        self._progress.complete(milliseconds)

    def due(self, position: Position | None, caught_up: bool, durable: Position | None) -> bool:
        """Whether it is time for a record of progress."""
        return self._progress.due(position, caught_up, durable)

    def records(
        self, resume: Resume, losses: Sequence[Loss], caught_up: bool, durable: Position | None
    ) -> Iterator[tuple[Internal, bytes, bytes]]:
        """Topic, key and value of each record of the commit of `resume`."""
        for key, value in self._losses.records(losses):
            yield Internal.PROGRESS, key, value
        if (progress := self._progress.record(resume, caught_up, durable)) is not None:
            yield Internal.PROGRESS, *progress
        for event in self._environment.schema.events:
            yield Internal.SCHEMA_CHANGES, event_key(self._host, event), encode_event(self._host, event)

    def committed(self, losses: Sequence[Loss]) -> None:
        """These losses are in Kafka."""
        self._losses.committed(losses)
