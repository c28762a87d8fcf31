"""The agent's surroundings in memory, for tests of whatever runs on them: Kafka, log, schema, clock; and faults.

They keep the promises of the real ones: transactions are all or nothing, a second publisher fences the first, a
released segment is gone, and everything in them outlives the process that `Crash` ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from tailrace.commitlog.entry import Entry
from tailrace.commitlog.mutation import first_table
from tailrace.history.objects import NodeState, Options
from tailrace.history.records import HistoryRecord
from tailrace.history.rows import KeyedRow
from tailrace.position import Position
from tailrace.publish.record import Record
from tailrace.schema.ddl_log import WATCHED, Gap
from tailrace.state.loss import Loss
from tailrace.state.resume import Quarantined, Resume, SegmentKey
from tailrace.state.spans import Span, spans
from tailrace_schemas.cql.types import user_types_in
from tailrace_schemas.errors import DecodeError, FencedError
from tailrace_schemas.table import Column, ColumnKind, Table
from tailrace_schemas.topics import Internal

_SCHEMA_IDS: Final = frozenset(table.id for table in WATCHED)


class Crash(BaseException):
    """The process dies here: nothing catches it, nothing is cleaned up by its hand."""


@dataclass(slots=True)
class Faults:
    """Raises `error` when a step is reached for the `nth` time (from 1); counts every step."""

    step: str = ""
    nth: int = 1
    error: BaseException = field(default_factory=Crash)
    seen: Counter[str] = field(default_factory=Counter)

    def at(self, step: str) -> None:
        """The code under test is at this step."""
        self.seen[step] += 1
        if step == self.step and self.seen[step] == self.nth:
            raise self.error


@dataclass(slots=True)
class MemoryKafka:
    """What read_committed readers see, the agent's offsets, and who may write. `announced` is `.schemas`, `ends` how
    many records there were after each commit."""

    records: list[Record] = field(default_factory=list)
    resume: Resume = field(default_factory=Resume)
    history: list[HistoryRecord] = field(default_factory=list)
    generation: int = 0
    commits: int = 0
    ends: list[int] = field(default_factory=list)
    announced: dict[bytes, bytes] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[Internal, bytes, bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MemoryNote:
    """A note of `.progress`."""

    key: bytes | None
    value: bytes | None


class MemoryProgress:
    """A ProgressLog of MemoryKafka."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self._next = 0

    def read_to_end(self) -> Iterator[MemoryNote]:
        """The notes that were not read yet."""
        while (note := self.poll(0)) is not None:
            yield note

    def poll(self, seconds: float) -> MemoryNote | None:
        """The next one."""
        del seconds
        notes = [MemoryNote(key, value) for which, key, value in self._kafka.notes if which is Internal.PROGRESS]
        if self._next >= len(notes):
            return None
        self._next += 1
        return notes[self._next - 1]

    def close(self) -> None:
        """Nothing to close."""


class MemoryPublisher:
    """A Publisher into MemoryKafka. Steps: start, send, note, commit (nothing is committed yet), committed (all is)."""

    def __init__(self, kafka: MemoryKafka, faults: Faults) -> None:
        self._kafka = kafka
        self._faults = faults
        self._open: list[Record] = []
        self._notes: list[tuple[Internal, bytes, bytes]] = []
        self._generation = 0

    def start(self) -> Resume:
        """Fence every older publisher."""
        self._faults.at("start")
        self._kafka.generation += 1
        self._generation = self._kafka.generation
        return self._kafka.resume

    def send(self, record: Record) -> None:
        """Add to the open transaction."""
        self._faults.at("send")
        self._check()
        self._open.append(record)

    def send_all(self, records: Iterable[Record]) -> None:
        """Each of them."""
        for record in records:
            self.send(record)

    def note(self, which: Internal, key: bytes, value: bytes) -> None:
        """The same, of an internal topic."""
        self._faults.at("note")
        self._check()
        self._notes.append((which, key, value))

    def history(self) -> list[HistoryRecord]:
        """What is committed of it."""
        return list(self._kafka.history)

    def progress(self) -> MemoryProgress:
        """The committed notes of `.progress`."""
        return MemoryProgress(self._kafka)

    def commit(self, resume: Resume, history: Sequence[HistoryRecord]) -> None:
        """Commit, all or nothing."""
        self._faults.at("commit")
        self._check()
        self._kafka.records += self._open
        self._kafka.notes += self._notes
        self._kafka.history += history
        self._kafka.resume = resume
        self._kafka.commits += 1
        self._kafka.ends.append(len(self._kafka.records))
        self._open, self._notes = [], []
        self._faults.at("committed")

    def close(self) -> None:
        """Drop what is open."""
        self._open, self._notes = [], []

    def _check(self) -> None:
        if self._generation != self._kafka.generation:
            raise FencedError("another agent started")


class MemoryDestinations:
    """Destinations in MemoryKafka, every topic of three partitions. Steps: topic, announce."""

    def __init__(self, kafka: MemoryKafka, faults: Faults) -> None:
        self._kafka = kafka
        self._faults = faults

    def topic(self, table: Table) -> str:
        """Keyspace and table."""
        return f"{table.keyspace}.{table.name}"

    def partitions(self, topic: str) -> int:
        """Create it."""
        self._faults.at("topic")
        return self._kafka.topics.setdefault(topic, 3)

    def limit(self, topic: str) -> int:
        """As large as a topic's is by default, where it is not set."""
        return self._kafka.limits.get(topic, 16 << 20)

    def announce(self, schemas: list[tuple[bytes, bytes]]) -> None:
        """Keep the records of `.schemas`."""
        self._faults.at("announce")
        self._kafka.announced.update(schemas)


@dataclass(slots=True)
class MemoryLog:
    """Segments by id: each a list of serialized mutations, all released by the index.

    A mutation's position is its place from 1. `plain` are segments that have no index, as they hold no changes,
    `losses` is what is missing and was not told, `durable` how far the node has flushed where changes are published
    ahead of that. Steps of its captures: read, release (before), released (after).
    """

    segments: dict[int, list[bytes]] = field(default_factory=dict)
    final: set[int] = field(default_factory=set)
    plain: set[int] = field(default_factory=set)
    version: int = 7
    durable: Position | None = None
    losses: tuple[Loss, ...] = ()

    def append(self, segment: int, payloads: Iterable[bytes], final: bool = True) -> None:
        """More mutations for a segment; a final one gets no others."""
        self.segments.setdefault(segment, []).extend(payloads)
        if final:
            self.final.add(segment)


class MemoryCapture:
    """A Capture of MemoryLog."""

    def __init__(self, log: MemoryLog, resume: Resume, faults: Faults) -> None:
        self._log = log
        self._faults = faults
        self._at = resume.position or Position(1, -1, 0)
        self._open = set(resume.open)
        self.quarantined: dict[int, Quarantined] = {q.segment: q for q in resume.quarantined}
        self._told = -1
        self._kept: frozenset[int] = frozenset()
        self.durable = log.durable
        self.unjudged: Position | None = None

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What is missing."""
        return self._log.losses

    def read(self, limit: int) -> list[Entry]:
        """What follows, in order."""
        self._faults.at("read")
        entries: list[Entry] = []
        for segment in sorted(self._log.segments):
            if segment < self._at.segment or segment in self.quarantined or segment in self._log.plain:
                continue
            self._open.add((segment, segment))
            start = self._at.offset if segment == self._at.segment else 0
            for number, payload in enumerate(self._log.segments[segment][start:], start + 1):
                if len(entries) == limit:
                    return entries
                self._at = Position(1, segment, number)
                entries.append(_entry(self._at, payload, self._log.version))
        return entries

    def keep(self, segments: frozenset[int]) -> None:
        """Release none of these."""
        self._kept = segments

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]:
        """Those of them that the log still has."""
        self._faults.at("reread")
        payloads = self._log.segments.get(segment, []) if checksum == segment else []
        for number, payload in enumerate(payloads, 1):
            if number in offsets:
                yield _entry(Position(epoch, segment, number), payload, self._log.version)

    def open_segments(self) -> tuple[SegmentKey, ...]:
        """Every segment read."""
        return tuple(sorted(self._open))

    def unread(self, position: Position | None) -> tuple[Span, ...]:
        """Every segment of the log that is not at or below the position."""
        return spans(set(self._log.segments) - self._log.plain - set(self._ended(position)))

    def reported(self, position: Position | None) -> tuple[Span, ...]:
        """None are missing."""
        del position
        return ()

    def news(self, position: Position) -> bool:
        """Whether a segment has ended, or something is missing."""
        return bool(self.losses) or max(self._ended(position), default=-1) > self._told

    def committed(self, position: Position | None, losses: Collection[Loss]) -> None:
        """These are told."""
        self._told = max((self._told, *self._ended(position)))
        self._log.losses = tuple(loss for loss in self.losses if loss not in losses)

    def finished(self, position: Position) -> bool:
        """Whether a final segment ends at or below the position, and is not kept."""
        return bool(set(self._ended(position)) - self._kept)

    def passed(self, position: Position, *, settled: bool) -> bool:
        """Whether everything up to there was read."""
        later = [id for id in self._log.segments if id not in self._log.plain and id not in self.quarantined]
        unread = [
            id
            for id in later
            if id > self._at.segment or (id == self._at.segment and len(self._log.segments[id]) > self._at.offset)
        ]
        return self._at >= position or (settled and not any(id <= position.segment for id in unread))

    def release(self, position: Position) -> tuple[int, ...]:
        """Delete final segments that end at or below the position."""
        done = [one for one in self._ended(position) if one <= self._told and one not in self._kept]
        for segment in done:
            self._faults.at("release")
            del self._log.segments[segment]
            self._faults.at("released")
        return tuple(done)

    def quarantine(self, position: Position, error: DecodeError) -> None:
        """Read it no further."""
        self.quarantined[position.segment] = Quarantined(position.segment, 0, position.offset, str(error))

    def close(self) -> None:
        """Nothing to close."""

    def _ended(self, position: Position | None) -> list[int]:
        if position is None:
            return []
        return [
            segment
            for segment, payloads in sorted(self._log.segments.items())
            if segment in self._log.final
            and segment not in self.quarantined
            and segment not in self._log.plain
            and Position(1, segment, len(payloads)) <= position
        ]


class MemorySchemaLog:
    """A SchemaSource of MemoryLog, in which every segment is there until it is released. Step: ddl."""

    def __init__(self, log: MemoryLog, faults: Faults) -> None:
        self._log = log
        self._faults = faults
        self.gaps: list[Gap] = []
        self.place: Position | None = None

    def begin(self, at: Position | None, epoch: int) -> None:
        """Read on behind a place."""
        del epoch
        self.place = at

    def read(self, until: Position | None) -> list[Entry]:
        """All DDL that follows."""
        del until
        self._faults.at("ddl")
        entries: list[Entry] = []
        for segment, payloads in sorted(self._log.segments.items()):
            for number, payload in enumerate(payloads, 1):
                at = Position(1, segment, number)
                if self.place is not None and at <= self.place:
                    continue
                self.place = (
                    at if number < len(payloads) or segment not in self._log.final else Position(1, segment + 1, 0)
                )
                if first_table(payload, self._log.version)[1] in _SCHEMA_IDS:
                    entries.append(_entry(at, payload, self._log.version))
        return entries

    def sift(self, tables: Callable[[], frozenset[bytes]]) -> None:
        """Every segment of a MemoryLog has an index."""


def _entry(at: Position, payload: bytes, version: int) -> Entry:
    return Entry(at.epoch, at.segment, at.offset, payload, version, f"CommitLog-7-{at.segment}.log")


@dataclass(slots=True)
class MemorySchema:
    """A SchemaReader. Step: schema."""

    tables: list[Table]
    faults: Faults = field(default_factory=Faults)
    written: int = 0
    options: dict[str, Options] = field(default_factory=dict)
    truncated: dict[UUID, bytes] = field(default_factory=dict)
    epoch: int | None = None

    def schema_rows(self) -> list[KeyedRow]:
        """The rows of the tables, now."""
        self.faults.at("schema")
        return [row for table in self.tables for row in rows_of(table, self.written)]

    def node_state(self) -> NodeState:
        """What else it says, now."""
        return NodeState(dict(self.options), dict(self.truncated), self.epoch)


def rows_of(table: Table, written: int = 0) -> tuple[KeyedRow, ...]:
    """The rows of `system_schema` that define a table, its user types' included, as if written at one time."""
    place = {"keyspace_name": table.keyspace, "table_name": table.name}
    rows = [KeyedRow("tables", {**place, "id": table.id, "flags": table.flags, "cdc": table.cdc}, written)]
    rows += [KeyedRow("columns", place | _column(column), written) for column in (*table.key, *table.columns)]
    for dropped in table.dropped:
        row = place | _column(dropped.column) | {"dropped_time": dropped.dropped_at // 1000}
        rows.append(KeyedRow("dropped_columns", row, written))
    for one in user_types_in(column.type for column in (*table.key, *table.columns)):
        row = {"keyspace_name": table.keyspace, "type_name": one.name, "field_names": list(one.fields)}
        rows.append(KeyedRow("types", {**row, "field_types": [str(arg) for arg in one.args]}, written))
    return tuple(rows)


def _column(column: Column) -> dict[str, object]:
    keyed = column.kind is ColumnKind.CLUSTERING
    return {
        "column_name": column.name,
        "column_name_bytes": column.name_bytes,
        "kind": column.kind.value,
        "position": column.position,
        "type": str(column.type),
        "clustering_order": ("desc" if column.descending else "asc") if keyed else "none",
    }


@dataclass(slots=True)
class ManualClock:
    """Time that passes only by waiting; `on_wait` runs in each wait, as the world outside would."""

    now: float = 0.0
    on_wait: Callable[[], None] = lambda: None
    waits: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self.now += seconds
        self.waits.append(seconds)
        self.on_wait()
