"""Gives a sink definitions of tables and watermarks between micro-batches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, ItemsView, Mapping
from typing import Final, Protocol

from tailrace_common.closing import Closing
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import TailraceError
from tailrace_schemas.progress import Progress
from tailrace_spark.job.completeness import Ends, WatermarkTracker, published_to
from tailrace_spark.sinks.protocol import AnnouncedSink, Watermark, WatermarkedSink

_LOG: Final = logging.getLogger("tailrace_spark")
_SECONDS: Final = 2.0


class Schemas(Protocol):
    """Announced schemas by schema id (tailrace_common.topics.SchemaReader)."""

    def refresh(self) -> None:
        """Read on to the end. Raises ServiceError."""

    def items(self) -> ItemsView[bytes, SchemaEntry]: ...

    def close(self) -> None: ...


class Hosts(Protocol):
    """Progress and ring of the hosts (tailrace_spark.job.hosts.KafkaHosts). All raise ServiceError."""

    def progress(self) -> Collection[Progress]:
        """Each host's newest progress."""

    def ring(self) -> Collection[str]:
        """The ids of the ring's hosts."""

    def ends(self, topics: Collection[str]) -> Ends:
        """The high watermarks of these topics' partitions."""

    def close(self) -> None: ...


class Upkeep(Closing):
    """Tells a sink what is announced in `.schemas`, and how far it is complete. Owns its readers; one thread at a time.

    `reads` says of a topic whether the stream reads it; `using` is held while the sink works, so never while a batch is
    written. Nothing here ends the stream: what fails is logged once, and tried again.
    """

    def __init__(
        self,
        sink: AnnouncedSink,
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

    def run(self, written: Callable[[], Ends | None], *, now: bool = False) -> None:
        """Do what is due, or all of it `now`; `written` says up to which offsets the stream has written, None where
        that is not known."""
        if not now and self._clock() < self._due:
            return
        try:
            self._announce()
            if (marked := self._sink.capabilities.watermarks) is not None:
                self._mark(marked, written)
        except Exception as error:  # the changes go on, whatever it is; what we do not know comes with its traceback
            if str(error) != self._problem:
                trace = None if isinstance(error, TailraceError) else error
                _LOG.warning(
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

    def _mark(self, sink: WatermarkedSink, written: Callable[[], Ends | None]) -> None:
        """A change becomes visible before or with the progress that covers it: so progress is read before the ends."""
        known = sorted(self._announced.values(), key=lambda entry: entry.announced)
        tables = {entry.topic: entry.table for entry in known}
        if not tables or (reached := written()) is None:
            return
        published = published_to(self._hosts.progress(), self._hosts.ring(), sink.lateness_ms)
        complete = self._marks.step(published, self._hosts.ends(tables), reached, tables)
        with self._using:
            sink.complete(
                Watermark(tables[topic], completeness.time, completeness.waits_for)
                for topic, completeness in complete.items()
            )
