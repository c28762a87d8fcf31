"""What the run loop runs on: Kafka, the node's files, schema, clock and limits, as parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from tailrace.changes.transcode import Message, Transcoder
from tailrace.commitlog.frames import Entry
from tailrace.history.records import HistoryRecord
from tailrace.history.schema import SchemaHistory
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record
from tailrace.schema.live import LiveSchema
from tailrace.state import Loss, Quarantined, Resume, SegmentKey, Span
from tailrace_common.kafka import Pace
from tailrace_common.kafka import Record as KafkaRecord
from tailrace_common.topics import PartitionSource
from tailrace_common.tracing.spans import Headers, TraceSpan
from tailrace_schemas.change import Source
from tailrace_schemas.errors import DecodeError, ServiceError
from tailrace_schemas.position import Position
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal


class Capture(Protocol):
    """The node's released mutations in position order; see capture.cdcraw.CdcRaw."""

    @property
    def quarantined(self) -> dict[int, Quarantined]: ...

    @property
    def durable(self) -> Position | None: ...

    @property
    def losses(self) -> tuple[Loss, ...]: ...

    @property
    def unjudged(self) -> Position | None: ...

    def read(self, limit: int) -> list[Entry]: ...

    def open_segments(self) -> tuple[SegmentKey, ...]: ...

    def unread(self, position: Position | None) -> tuple[Span, ...]: ...

    def reported(self, position: Position | None) -> tuple[Span, ...]: ...

    def news(self, position: Position) -> bool: ...

    def committed(self, position: Position | None, losses: Collection[Loss]) -> None: ...

    def passed(self, position: Position, *, settled: bool) -> bool: ...

    def may_hold(self, table_id: UUID, after: Position, until: Position) -> bool: ...

    def finished(self, position: Position) -> bool: ...

    def release(self, position: Position) -> tuple[int, ...]: ...

    def quarantine(self, position: Position, error: DecodeError) -> None: ...

    def keep(self, segments: frozenset[int]) -> None: ...

    def reread(self, epoch: int, segment: int, checksum: int, offsets: Collection[int]) -> Iterator[Entry]: ...

    def close(self) -> None: ...


class ProgressLog(PartitionSource, Protocol):
    """The host's partition of `.progress`, from its beginning on; see tailrace_common.kafka.PartitionReader."""

    def poll(self, seconds: float) -> KafkaRecord | None: ...


class Publisher(Protocol):
    """A fenced, transactional way into Kafka; see publish.kafka.KafkaPublisher."""

    def start(self) -> Resume: ...

    def send_all(self, records: Sequence[Record], headers: Headers = ()) -> None: ...

    def fits(self, records: Iterable[Record]) -> bool: ...

    def note(self, topic: Internal, key: bytes, value: bytes) -> None: ...

    def history(self) -> Sequence[HistoryRecord]: ...

    def progress(self) -> ProgressLog: ...

    def commit(self, resume: Resume, history: Sequence[HistoryRecord]) -> None: ...

    def close(self) -> None: ...


class Routing(Protocol):
    """Messages to records; see publish.routing.Router."""

    def publishes(self, table: Table) -> bool: ...

    def keep_unselected(self, words: str | None) -> None: ...

    def open(self, table: Table) -> bool: ...

    def records(self, messages: Iterable[Message]) -> list[Record]: ...

    def truncation(self, table: Table, written: int, source: Source, upto: Position | None) -> list[Record]: ...

    def refuse(self, topic: str, words: str) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of the run loop.

    `cluster` is the cluster's name in our topics, `name` the node's, or its address, for people.
    `clock` is monotonic, in seconds; `milliseconds` is wall-clock time.
    `wait` sleeps until something happens, for at most the given seconds. `stop` says whether to end after the current
    transaction. `selecting` judges a schema history: whether segments that were retained because no table was selected
    may be released (agent.tables). All publishers share `pace`.
    `trace` begins the span of a transaction, where that one is traced.
    """

    cluster: str
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
    selecting: Callable[[SchemaHistory], bool] = lambda _: False
    pace: Pace
    name: str | None = None
    trace: Callable[[], TraceSpan | None] = lambda: None

    def pause(self, seconds: float, over: Callable[[], bool] = lambda: False) -> None:
        """Wait, at most so long, until `over` or `stop`; DDL is read on, as segments come and go meanwhile."""
        until = self.clock() + seconds
        while not (self.stop() or over()) and (remaining := until - self.clock()) > 0:
            self.health.alive()
            self.wait(remaining)
            with suppress(ServiceError):
                self.schema.follow(None)
