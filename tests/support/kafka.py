"""Kafka as the agent sees it, in memory; and faults at any step of the code under test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.history.records import HistoryRecord
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import Record as KafkaRecord
from tailrace_common.tracing.spans import Headers
from tailrace_schemas.errors import FencedError, RefusedError, ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal


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


class CassandraDown(Faults):
    """Cassandra tells its schema at the start, and then not."""

    def at(self, step: str) -> None:
        self.seen[step] += 1
        if step == "schema" and self.seen[step] > 1:
            raise ServiceError("Cassandra is down")


@dataclass(slots=True)
class MemoryKafka:
    """What read_committed readers see, the agent's offsets, and who may write. `announced` is `.schemas`, `ends` how
    many records there were after each commit, `refused` the topics that it does not make."""

    records: list[Record] = field(default_factory=list)
    resume: Resume = field(default_factory=Resume)
    history: list[HistoryRecord] = field(default_factory=list)
    generation: int = 0
    commits: int = 0
    ends: list[int] = field(default_factory=list)
    announced: dict[bytes, bytes] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    notes: list[tuple[Internal, bytes, bytes]] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)


class MemoryProgress:
    """A ProgressLog of MemoryKafka."""

    def __init__(self, kafka: MemoryKafka) -> None:
        self._kafka = kafka
        self._next = 0

    def read_to_end(self) -> Iterator[KafkaRecord]:
        """The notes that were not read yet."""
        while (note := self.poll(0)) is not None:
            yield note

    def poll(self, seconds: float) -> KafkaRecord | None:
        """The next one."""
        del seconds
        notes = [(key, value) for which, key, value in self._kafka.notes if which is Internal.PROGRESS]
        if self._next >= len(notes):
            return None
        self._next += 1
        return KafkaRecord(self._next - 1, 0, *notes[self._next - 1])

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

    def send_all(self, records: Iterable[Record], headers: Headers = ()) -> None:
        """Each of them; `headers` are kept beside."""
        self._kafka.headers.append(headers)
        for record in records:
            self.send(record)

    def fits(self, records: Iterable[Record]) -> bool:
        """Whether their topics take such batches: all take any."""
        del records
        return True

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
        if topic in self._kafka.refused:
            raise RefusedError(topic, "no right to make it")
        return self._kafka.topics.setdefault(topic, 3)

    def limit(self, topic: str) -> int:
        """As large as a topic's is by default, where it is not set."""
        return self._kafka.limits.get(topic, 16 << 20)

    def announce(self, table_id: UUID, schemas: list[tuple[bytes, bytes]], *, newest: bool = False) -> None:
        """Keep the records of `.schemas`."""
        del table_id, newest
        self._faults.at("announce")
        self._kafka.announced.update(schemas)
