"""What a sink is given between micro-batches: definitions of tables, watermarks, sweeps of expired rows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, ItemsView, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from tailrace_common.backoff import Backoff, Waits
from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionEnds
from tailrace_common.properties.passthrough import Scalar
from tailrace_common.topics import GenerationReader, ProgressReader
from tailrace_common.unreachable import with_next_try
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.progress import Progress
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.job.metrics import StreamMetrics
from tailrace_spark.job.offsets import Offsets
from tailrace_spark.sinks.protocol import Follows, Sink, Watermark, WatermarkedSink, follow, follows_all

log = logging.getLogger("tailrace_spark")

_SECONDS: Final = 2.0  # between two sweeps, and two looks at what is announced
_WAITS: Final = Waits(2 * _SECONDS, 60.0)


class Schemas(Protocol):
    """Announced schemas by schema id (tailrace_common.topics.SchemaReader)."""

    def refresh(self) -> None:
        """Read on to the end. Raises ServiceError."""

    def items(self) -> ItemsView[bytes, SchemaEntry]: ...

    def close(self) -> None: ...


class Hosts(Protocol):
    """Progress and ring of the hosts (tailrace_spark.job.upkeep.KafkaHosts). All raise ServiceError."""

    def progress(self) -> Collection[Progress]:
        """Each host's newest progress."""

    def ring(self) -> Collection[str]:
        """The ids of the ring's hosts."""

    def ends(self, topics: Collection[str]) -> Offsets:
        """The high watermarks of these topics' partitions."""

    def close(self) -> None: ...


class Upkeep(Closing):
    """Tells a sink what is announced in `.schemas`, and how far it is complete. Owns its readers; one thread at a time.

    `reads` says of a topic whether the stream reads it; `using` is held while the sink works, so never while a batch is
    written. Nothing here ends the stream: what fails is logged once, and tried again.
    """

    def __init__(
        self,
        sink: WatermarkedSink,
        schemas: Schemas,
        hosts: Hosts,
        reads: Callable[[str], bool],
        using: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._schemas = schemas
        self._hosts = hosts
        self._reads = reads
        self._using = using
        self._clock = clock
        self._due = clock()
        self._announced: dict[bytes, SchemaEntry] = {}
        self._marks = WatermarkTracker()
        self._problem = ""

    def run(self, written: Callable[[], Offsets | None], *, now: bool = False) -> None:
        """Do what is due, or all of it `now`; `written` says up to which offsets the stream has written, None where
        that is not known."""
        if not now and self._clock() < self._due:
            return
        try:
            self._announce()
            self._mark(written)
        except Exception as error:  # the changes go on, whatever it is; what we do not know comes with its traceback
            if str(error) != self._problem:
                trace = None if isinstance(error, TailraceError) else error
                log.warning(
                    "log tables or their watermarks are not up to date; trying again: %s", error, exc_info=trace
                )
            self._problem = str(error)
        else:
            self._problem = ""
        self._due = self._clock() + _SECONDS

    def close(self) -> None:
        """Leave Kafka."""
        self._schemas.close()
        self._hosts.close()

    def _announce(self) -> None:
        self._schemas.refresh()
        news = self._news()
        if not news:
            return
        with self._using:
            self._sink.announce([(entry.announced, entry.table) for entry in news.values()])
        self._announced |= news

    def _news(self) -> Mapping[bytes, SchemaEntry]:
        """Definitions that were announced, or announced again, since the sink was given them, in that order."""
        news = {
            schema_id: entry
            for schema_id, entry in self._schemas.items()
            if entry is not self._announced.get(schema_id) and entry.part == "value" and self._reads(entry.topic)
        }
        return dict(sorted(news.items(), key=lambda item: item[1].announced))

    def _mark(self, written: Callable[[], Offsets | None]) -> None:
        """A change becomes visible before or with the progress that covers it: so progress is read before the ends."""
        known = sorted(self._announced.values(), key=lambda entry: entry.announced)
        tables = {entry.topic: entry.table for entry in known}
        if not tables or (reached := written()) is None:
            return
        published = published_to(self._hosts.progress(), self._hosts.ring(), self._sink.lateness_ms)
        complete = self._marks.step(published, self._hosts.ends(tables), reached, tables)
        with self._using:
            self._sink.complete(
                Watermark(tables[topic], completeness.time, completeness.waits_for)
                for topic, completeness in complete.items()
            )


class KafkaHosts(Closing):
    """By readers of its own; nothing connects before the first question. One thread at a time."""

    def __init__(self, config: Mapping[str, Scalar], prefix: str) -> None:
        """`config` is librdkafka's."""
        self._config = config
        self._prefix = prefix
        self._progress: ProgressReader | None = None
        self._generations = GenerationReader.open(config, internal_topic(prefix, Internal.GENERATIONS))
        self._ends = PartitionEnds(config)
        self._ring: tuple[UUID, frozenset[str]] | None = None

    def progress(self) -> Collection[Progress]:
        """Each host's newest progress. Raises ServiceError."""
        if self._progress is None:
            self._progress = ProgressReader(self._config, self._prefix)
        return self._progress.read()

    def ring(self) -> Collection[str]:
        """The hosts of the newest generation's ring; none before there is one. Raises ServiceError."""
        published = self._generations.refresh()
        if not published:
            return frozenset()
        newest = published[-1]
        if self._ring is None or self._ring[0] != newest.uuid:  # a large ring takes seconds to unpack
            self._ring = newest.uuid, frozenset(node.host for node in newest.unpack().ring.nodes if node.tokens)
        return self._ring[1]

    def ends(self, topics: Collection[str]) -> Offsets:
        """The high watermarks of these topics' partitions. Raises ServiceError."""
        return self._ends.high_watermarks(topics)

    def close(self) -> None:
        """Leave Kafka."""
        self._generations.close()
        if self._progress is not None:
            self._progress.close()


@dataclass(frozen=True, slots=True)
class Completeness:
    """Milliseconds since 1970: what was written before is published by every host; None where that is not known.

    `waits_for` says in words what holds it back, if anything does.
    """

    time: int | None
    waits_for: str = ""


def published_to(progress: Iterable[Progress], ring: Collection[str], lateness_ms: int) -> Completeness:
    """The time up to which all hosts have published: those of the ring, and those that were not retired.

    A change is in a host's log at most `lateness_ms` after its write time, and released. Mutations that are parked come
    later than what is published behind them, so a host that has some says nothing.
    """
    hosts = {record.host: record for record in progress}
    if absent := sorted(set(ring) - hosts.keys()):
        return Completeness(None, f"host {absent[0]} has published no progress yet: is its agent running?")
    if not hosts:
        return Completeness(None, "no host has published progress yet: is an agent running?")
    for host, record in sorted(hosts.items()):
        if record.parked:
            return Completeness(None, f"host {host} has {record.parked} parked mutations: see tailrace parked list")
        if record.complete_to is None:
            return Completeness(None, f"host {host} has not published its log to the end yet")
    slowest = min(hosts.values(), key=lambda record: record.complete_to or 0)
    words = f"host {slowest.host}"
    if slowest.host not in ring:
        words += ", which is not in the ring any more: see tailrace hosts retire"
    return Completeness((slowest.complete_to or 0) - lateness_ms, words)


class WatermarkTracker:
    """The time up to which each topic's part of the log is complete.

    A mark is a time up to which all hosts have published, with the ends that a topic's partitions had after that was
    known. Once the stream has written up to there, everything before that time is written.
    """

    def __init__(self) -> None:
        self._pending: dict[str, tuple[int, Offsets]] = {}
        self._reached: dict[str, int] = {}

    def step(
        self, published: Completeness, ends: Offsets, written: Offsets, topics: Iterable[str]
    ) -> dict[str, Completeness]:
        """Each topic's; `ends` are high watermarks that were asked for after `published` was read, `written` is what
        the stream has written up to."""
        return {topic: self._topic(topic, published, ends, written) for topic in topics}

    def _topic(self, topic: str, published: Completeness, ends: Offsets, written: Offsets) -> Completeness:
        topic_ends = {partition: end for partition, end in ends.items() if partition[0] == topic}
        _, pending_ends = self._pending.get(topic, (0, written))
        if not (_has_reached(topic_ends, written) and _has_reached(topic_ends, pending_ends)):
            # It was deleted, and perhaps made again: what was written before tells nothing of it.
            self._pending.pop(topic, None)
            return Completeness(self._reached.get(topic), "its topic, which is not there or not the one that was read")
        self._settle(topic, written)
        reached = self._reached.get(topic)
        if topic not in self._pending and published.time is not None and (reached is None or published.time > reached):
            self._pending[topic] = published.time, topic_ends
            self._settle(topic, written)
        if topic not in self._pending:
            return Completeness(self._reached.get(topic), published.waits_for)
        return Completeness(self._reached.get(topic), "the stream, which has not written everything yet")

    def _settle(self, topic: str, written: Offsets) -> None:
        mark = self._pending.get(topic)
        if mark is not None and all(written.get(partition, 0) >= end for partition, end in mark[1].items()):
            self._reached[topic] = mark[0]
            del self._pending[topic]


def _has_reached(topic_ends: Offsets, offsets: Offsets) -> bool:
    """Whether a topic's partitions have as many records as these offsets say; not so one that is not there."""
    return bool(topic_ends) and all(end >= offsets.get(partition, 0) for partition, end in topic_ends.items())


class Sweeper:
    """Sweeps a sink every two seconds, if it is one that can be swept.

    After each failure it waits twice as long, at most a minute, until a sweep succeeds.

    `sink_lock` is held by whoever uses the sink: nothing is swept while a batch is being written.
    """

    def __init__(
        self,
        sink: Sink,
        sink_lock: threading.Lock,
        metrics: StreamMetrics,
        clock: Callable[[], float] = time.monotonic,
        *,
        follows: Follows = follows_all,
    ) -> None:
        """The sink sees to tables that the stream `follows`."""
        self._sweeping = sink.capabilities.sweeping
        follow(sink, follows)
        self._sink_lock = sink_lock
        self._metrics = metrics
        self._clock = clock
        self._due = clock() + _SECONDS
        self._backoff = Backoff(_WAITS)

    def run(self) -> None:
        """Sweep if it is due and the sink is free. A failure is logged, and a later sweep tries again."""
        if self._sweeping is None or self._clock() < self._due:
            return
        if not self._sink_lock.acquire(blocking=False):
            return
        pause = _SECONDS
        try:
            self._metrics.swept(self._sweeping.sweep())
            self._backoff.reset()
        except ServiceError as error:
            pause = self._backoff.next()
            words = f"could not remove expired rows from the sink, and readers see them: {error}"
            log.warning("%s", with_next_try(words, pause))
        finally:
            self._due = self._clock() + pause
            self._sink_lock.release()
