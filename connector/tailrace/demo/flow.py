"""The flow of changes while it runs: what was written, what stands in Kafka, what the SQLite file has."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from tailrace.demo.checkpoint import Checkpoint
from tailrace.demo.display import Counts, Display, Landed, Seen
from tailrace.demo.feed import Feed
from tailrace.demo.script import LAST_CUSTOMER, LAST_SITE
from tailrace.demo.sqlite_file import SqliteFile
from tailrace.demo.tables import KEYSPACE, TABLES
from tailrace_schemas.change import Op, record_times
from tailrace_schemas.topics import KafkaPartition

_WHOLE = frozenset({Op.DELETE_PARTITION, Op.DELETE_RANGE})
_LAST = frozenset({LAST_CUSTOMER, LAST_SITE})


class Flow:
    """Takes changes from the feed and tells the display of each as soon as the SQLite file has it.

    `wall` is the time in seconds since the epoch, by which latencies are taken from write times after `began`.
    """

    def __init__(
        self, feed: Feed, checkpoint: Checkpoint, sqlite: SqliteFile, display: Display, wall: Callable[[], float]
    ) -> None:
        self._feed = feed
        self._checkpoint = checkpoint
        self._sqlite = sqlite
        self._display = display
        self._wall = wall
        self._began = wall()
        self._waiting: dict[KafkaPartition, deque[Seen]] = {}
        self._latencies: list[float] = []
        self._published = 0
        self._rows = 0
        self._last: set[str] = set()
        self.written = 0
        """How many statements were run; the writer counts here."""
        self.landed = 0
        """How many changes the SQLite file has."""

    @property
    def complete(self) -> bool:
        """Whether the last change of every table has arrived in Kafka, and everything there in the SQLite file.

        One agent publishes in the order of the log: behind the last change there is nothing more.
        """
        return len(self._last) == len(TABLES) and not any(self._waiting.values())

    @property
    def counts(self) -> Counts:
        """The numbers so far."""
        return Counts(self.written, self._published, self.landed, self._rows, tuple(self._latencies))

    def turn(self, seconds: float) -> None:
        """One round, which waits at most so long for a change. Raises ServiceError."""
        for change in self._feed.take(seconds):
            self._published += 1
            self._waiting.setdefault((change.topic, change.partition), deque()).append(change)
            if not _LAST.isdisjoint(map(str, change.key.values())):
                self._last.add(change.change.table.name)
        ends, landed_before = self._checkpoint.ends(), self.landed
        written: list[Seen] = []
        for partition, waiting in self._waiting.items():
            while waiting and waiting[0].offset < ends.get(partition, 0):
                written.append(waiting.popleft())
        for change in sorted(written, key=_position):
            self._land(change)
        if self.landed > landed_before:
            self._rows = sum(self._sqlite.count(sink_table(name)) for name in TABLES)
        self._display.counts(self.counts)
        self._display.refresh()

    def _land(self, received: Seen) -> None:
        self.landed += 1
        change = received.change
        seconds = self._wall() - record_times(change)[0] / 1e6
        fresh = record_times(change)[0] / 1e6 >= self._began and seconds >= 0
        if fresh:
            self._latencies.append(seconds)
        table = sink_table(change.table.name)
        rows = self._sqlite.rows(table, _where(received))
        stream_id = self._sqlite.stream_id(table, change)
        latency = seconds if fresh else None
        if change.op in _WHOLE or change.static:
            landed = Landed(received, stream_id, rows=len(rows), seconds=latency)
        else:
            landed = Landed(received, stream_id, row=rows[0] if rows else None, seconds=latency)
        self._display.landed(landed)


def sink_table(name: str) -> str:
    """What the stream calls a table of the demo's keyspace: the default of sink.NAME.table."""
    return f"{KEYSPACE}_{name}"


def _position(received: Seen) -> tuple[int, int, int]:
    """Where the change stood in the commit log."""
    source = received.change.source
    return (0, 0, 0) if source is None else (source.position.segment, source.position.offset, source.index)


def _where(received: Seen) -> Mapping[str, object]:
    """The key columns that are known; the demo's have types whose plain values SQLite stores as they are."""
    return {name: value for name, value in received.key.items() if value is not None}
