"""The run loop, written once: read -> publish -> commit -> release. Kafka, files, cluster and clock are parameters."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tailrace.capture.cdcraw import FIRST_EPOCH, Quarantined, Resume
from tailrace.capture.ledger import SegmentKey
from tailrace.capture.schema import LiveSchema
from tailrace.capture.segment import Entry
from tailrace.changes.transcode import Message, Transcoder
from tailrace.errors import HeldError, UnknownColumnError, UnknownTableError
from tailrace.history.decode import messages_at, source_at
from tailrace.history.records import HistoryRecord
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.position import Position
from tailrace.publish.record import Record
from tailrace_schemas.change import SCHEMA_INFERRED, Source
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.table import Table

_LOG: Final = logging.getLogger("tailrace.agent")


class Capture(Protocol):
    """The node's released mutations in position order; see capture.cdcraw.CdcRaw."""

    @property
    def quarantined(self) -> dict[int, Quarantined]: ...

    @property
    def lost(self) -> dict[int, str]: ...

    def read(self, limit: int) -> list[Entry]: ...

    def open_segments(self) -> tuple[SegmentKey, ...]: ...

    def finished(self, position: Position) -> bool: ...

    def release(self, position: Position) -> tuple[int, ...]: ...

    def quarantine(self, position: Position, error: DecodeError) -> None: ...

    def close(self) -> None: ...


class Publisher(Protocol):
    """A fenced, transactional way into Kafka; see publish.kafka.KafkaPublisher."""

    def start(self) -> Resume: ...

    def send(self, record: Record) -> None: ...

    def history(self) -> Sequence[HistoryRecord]: ...

    def commit(self, resume: Resume, history: Sequence[HistoryRecord]) -> None: ...

    def close(self) -> None: ...


class Routing(Protocol):
    """Messages to records; see publish.routing.Router."""

    def open(self, table: Table) -> None: ...

    def records(self, messages: Iterable[Message]) -> list[Record]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the loop runs on. `clock` is monotonic seconds, `milliseconds` wall-clock time, `wait` sleeps until
    something happens, at most so many seconds, `stop` says whether to end after the current transaction."""

    publisher: Callable[[], Publisher]
    capture: Callable[[Resume], Capture]
    transcoder: Transcoder
    routing: Routing
    schema: LiveSchema
    health: HealthBoard
    clock: Callable[[], float]
    milliseconds: Callable[[], int]
    wait: Callable[[float], object]
    stop: Callable[[], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a transaction is committed: at so many changes for each partition that it touches (each costs the commit
    about the same), or at an age. `idle_seconds` apart, at least, are commits that only move the position."""

    changes: int = 64
    seconds: float = 0.02
    idle_seconds: float = 10.0
    poll_seconds: float = 1.0
    retry_seconds: float = 0.5
    retry_seconds_most: float = 30.0
    read: int = 256


class Agent:
    """Publishes one node's changes until it is told to stop."""

    def __init__(self, parts: Parts, host: str, datacenter: str, limits: Limits | None = None) -> None:
        self._parts = parts
        self._host = host
        self._datacenter = datacenter
        self._limits = limits or Limits()

    def run(self) -> None:
        """Run until `stop`. After a failure of Kafka or of the directory it starts over from what Kafka has.

        Raises what no new start can cure: FencedError, LogEpochError, OffsetsError, SettingsError.
        """
        backoff = _Backoff(self._limits)
        while not self._parts.stop():
            try:
                self._session(backoff)
            except ServiceError as error:
                self._parts.health.ready(False)
                if self._parts.health.degrade("service", str(error)):
                    _LOG.error("%s", error)
                _wait(self._parts, backoff.next())

    def _session(self, backoff: _Backoff) -> None:
        parts = self._parts
        with closing(parts.publisher()) as publisher:
            resume = publisher.start()
            epoch = FIRST_EPOCH if resume.position is None else resume.position.epoch
            parts.schema.begin(publisher.history(), resume.schema, epoch)
            _LOG.info("publishing as host %s from position %s", self._host, resume.position or "the first segment")
            with closing(parts.capture(resume)) as capture:
                source = Source(self._host, self._datacenter, 0, 0, 0, 0, 0)
                run = _Run(parts, self._limits, publisher, capture, resume, source)
                for cause in ("service", "held"):
                    parts.health.recover(cause)
                parts.health.ready(True)
                while not parts.stop():
                    run.step()
                    if run.committed:
                        backoff.reset()
                run.finish()


class _Backoff:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.reset()

    def reset(self) -> None:
        self._next = self._limits.retry_seconds

    def next(self) -> float:
        seconds, self._next = self._next, min(2 * self._next, self._limits.retry_seconds_most)
        return seconds


class _UnexplainedError(Exception):
    """A mutation that the present schema does not explain."""


class _Run:
    """One stretch of work between two starts of the publisher: its position, and the transaction that is open."""

    def __init__(
        self, parts: Parts, limits: Limits, publisher: Publisher, capture: Capture, resume: Resume, source: Source
    ) -> None:
        self._parts = parts
        self._limits = limits
        self._publisher = publisher
        self._capture = capture
        self._source = source
        self.committed = False
        """Whether a transaction came through: a start alone proves nothing."""
        self._entries: deque[Entry] = deque()
        self._held = self._refused = False
        self._backoff = _Backoff(limits)
        self._done = self._committed = resume.position
        self._began: float | None = None
        self._moved = parts.clock()
        self._schema_place = resume.schema
        self._changes = 0
        self._mutations = 0
        self._touched: set[tuple[str, int]] = set()
        self._by_topic: Counter[str] = Counter()

    def step(self) -> None:
        """One round: a batch of mutations, or a wait. Returns at a mutation's boundary."""
        self._parts.health.alive()
        if not self._entries:
            self._read()
        if not self._entries:
            self._settle()
            return
        while self._entries and not self._parts.stop():
            entry = self._entries[0]
            try:
                records = self._parts.routing.records(self._translate(entry))
            except (_UnexplainedError, HeldError) as error:
                self._hold(entry, str(error))
                return
            except DecodeError as error:
                self._quarantine(entry, error)
                continue
            self._go_on()
            self._publish(records)
            self._entries.popleft()
            self._done = entry.position
            self._mutations += 1
            if self._full():
                self._commit()

    def finish(self) -> None:
        """Commit what is open, and how far it came."""
        if self._began is not None or self._done != self._committed or self._parts.schema.unsent:
            self._commit(release=not self._held)

    # -- reading

    def _read(self) -> None:
        try:
            self._entries.extend(self._capture.read(self._limits.read))
            # What the index has released stands in the file: so does all DDL before it.
            changed = self._parts.schema.follow(self._entries[-1].position if self._entries else None)
        except ServiceError:
            self.finish()  # what stands before the file that cannot be read is not held up by it
            raise
        self._report()
        if self._parts.schema.hinted:
            changed |= self._try(self._parts.schema.learn)
        if changed or self._refused:
            self._open_topics()

    def _report(self) -> None:
        health = self._parts.health
        for segment, one in self._capture.quarantined.items():
            words = f"quarantined behind {one.offset}: {one.reason}; its file is kept in cdc_raw"
            health.degrade(f"segment {segment}", words)
        for segment, words in self._capture.lost.items():
            health.degrade(f"segment {segment}", words)
        for table, words in self._parts.schema.inferred.items():
            health.degrade(f"definition of {table}", words)

    def _open_topics(self) -> None:
        """What is refused is reported now, and held when its first change comes."""
        health = self._parts.health
        self._refused = False
        for table in self._parts.schema.history.tracked():
            try:
                self._parts.routing.open(table)
                health.recover(f"schema of {table}")
            except HeldError as error:
                self._refused = True
                if health.degrade(f"schema of {table}", str(error)):
                    _LOG.error("%s", error)

    def _try(self, read: Callable[[], object]) -> bool:
        """Read the schema; where Cassandra does not answer, what is known goes on to hold, and health says so."""
        health = self._parts.health
        # The read may take long, and readers would wait for an open transaction.
        if self._began is not None:
            self._commit(release=False)
        try:
            read()
        except ServiceError as error:
            if health.degrade("schema", str(error)):
                _LOG.warning("%s", error)
            return False
        if health.recover("schema"):
            _LOG.info("the schema can be read again")
        return True

    # -- translating

    def _translate(self, entry: Entry) -> list[Message]:
        """The messages of a mutation; none for what is no table's of ours. Raises _UnexplainedError, DecodeError."""
        schema = self._parts.schema
        try:
            return self._decode(entry, schema.history)
        except (UnknownTableError, DecodeError) as error:
            # A definition that does not fit looks like damage; only one that was read just now is believed.
            if not self._try(schema.learn):
                raise _UnexplainedError(f"{error}, and the schema cannot be read") from error
        try:
            messages = self._decode(entry, trial := schema.as_read(entry))
        except (UnknownTableError, UnknownColumnError) as error:
            raise _UnexplainedError(str(error)) from error
        schema.adopt(trial, entry)
        return messages

    def _decode(self, entry: Entry, history: SchemaHistory) -> list[Message]:
        at = entry.position
        source = source_at(self._source, at, self._parts.milliseconds())
        if history.unsure and any(history.inferred(id, at) for id in history.unsure if id.bytes in entry.payload):
            source = replace(source, flags=SCHEMA_INFERRED)
        messages = messages_at(history, self._parts.transcoder, entry.payload, entry.version, source)
        if source.flags:
            self._parts.health.count(schema_inferred=len(messages))
        return messages

    # -- publishing

    def _publish(self, records: list[Record]) -> None:
        for record in records:
            if self._began is None:
                self._began = self._parts.clock()
            self._publisher.send(record)
            self._changes += 1
            self._by_topic[record.topic] += 1
            self._touched.add((record.topic, record.partition))

    def _full(self) -> bool:
        enough = self._changes >= self._limits.changes * len(self._touched)
        return self._began is not None and (enough or self._age() >= self._limits.seconds)

    def _age(self) -> float:
        return 0.0 if self._began is None else self._parts.clock() - self._began

    def _settle(self) -> None:
        """Nothing to read: commit what is open when its time has come, or the position alone, else wait."""
        self._parts.health.caught_up()
        left = self._limits.seconds - self._age()
        if self._began is not None and left > 0:
            self._parts.wait(left)
        elif self._began is not None or self._parts.schema.unsent or self._is_worth_moving():
            self._commit()
        else:
            # What an earlier run committed and did not come to delete.
            self._release()
            self._parts.wait(self._limits.poll_seconds)

    def _is_worth_moving(self) -> bool:
        """Whether a commit without changes is due: before a release at once, else from time to time."""
        place = self._parts.schema.place
        moved = self._done is not None and self._done != self._committed
        if self._done is not None and self._capture.finished(self._done) and (moved or place != self._schema_place):
            return True
        rolled = place is not None and (self._schema_place is None or place.segment != self._schema_place.segment)
        return (moved or rolled) and self._parts.clock() - self._moved >= self._limits.idle_seconds

    def _commit(self, release: bool = True) -> None:
        """Commit changes and position in one transaction; then, and only then, finished segments may go."""
        parts, schema = self._parts, self._parts.schema
        if self._began is None and self._done is None and not schema.unsent:
            return
        segments, broken = self._capture.open_segments(), tuple(self._capture.quarantined.values())
        resume = Resume(self._done, segments, broken, schema.place)
        self._publisher.commit(resume, schema.unsent)
        schema.sent()
        _LOG.debug("committed %d changes up to %s", self._changes, self._done)
        parts.health.count(changes=self._changes, mutations=self._mutations, transactions=1)
        parts.health.published(self._by_topic)
        parts.health.committed(self._done)
        self.committed = True
        self._committed, self._schema_place = resume.position, resume.schema
        self._began, self._changes, self._mutations, self._moved = None, 0, 0, parts.clock()
        self._touched.clear()
        self._by_topic.clear()
        if release:
            self._release()

    def _release(self) -> None:
        """Release what is committed, but no segment of which DDL may be unread: none that `schema` is not behind."""
        if self._committed is None or (place := self._schema_place) is None:
            return
        upto = min(self._committed, Position(place.epoch, place.segment, -1))
        if self._capture.finished(upto):
            self._parts.health.count(released=len(self._capture.release(upto)))

    # -- what cannot be published

    def _quarantine(self, entry: Entry, error: DecodeError) -> None:
        """The mutation at hand cannot be read, and its segment from there on; the next segment goes on."""
        segment = entry.position.segment
        good = self._done if self._done is not None and self._done.segment == segment else None
        error.file = error.file or entry.file
        self._capture.quarantine(good or Position(entry.position.epoch, segment, 0), error)
        self._entries = deque(other for other in self._entries if other.position.segment != segment)
        self._report()

    def _go_on(self) -> None:
        """The mutation at hand can be published."""
        if self._held:
            self._held = False
            self._backoff.reset()
            self._parts.health.recover("held")
            _LOG.info("going on: the mutation that held everything can be published")

    def _hold(self, entry: Entry, reason: str) -> None:
        """Publish nothing from this mutation on, release nothing, and try again: soon, then less often."""
        if self._began is not None:
            self._commit(release=False)
        words = (
            f"stopped at {entry.position} in {entry.file}: {reason}. Nothing later is published and no file released "
            "until that is settled"
        )
        if self._parts.health.degrade("held", words):
            _LOG.error("%s", words)
        self._held = True
        _wait(self._parts, self._backoff.next(), lambda: self._parts.schema.hinted)


def _wait(parts: Parts, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
    until = parts.clock() + seconds
    while not (parts.stop() or over()) and (left := until - parts.clock()) > 0:
        parts.health.alive()
        parts.wait(left)
        with suppress(ServiceError):
            parts.schema.follow(None)  # segments without cdc data come and go meanwhile
