"""What a sink is given between micro-batches: definitions of tables, before their first change."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, ItemsView, Mapping
from typing import Final, Protocol

from tailrace_common.closing import Closing
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import ServiceError
from tailrace_spark.sinks.protocol import AnnouncedSink, Sink

_LOG: Final = logging.getLogger("tailrace_spark")
_SECONDS: Final = 2.0


class Schemas(Protocol):
    """What is announced, by schema id (tailrace_common.schemas.SchemaReader)."""

    def refresh(self) -> None:
        """Read on to the end. Raises ServiceError."""

    def items(self) -> ItemsView[bytes, SchemaEntry]: ...

    def close(self) -> None: ...


class Upkeep(Closing):
    """Tells a sink what is announced in `.schemas`. Owns the reader; one thread at a time.

    `reads` says of a topic whether the stream reads it; `using` is held while the sink works, so never while a batch is
    written. Nothing here ends the stream: what fails is logged once, and tried again.
    """

    def __init__(
        self,
        sink: Sink,
        schemas: Schemas,
        reads: Callable[[str], bool],
        using: threading.Lock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sink = sink
        self._schemas = schemas
        self._reads = reads
        self._using = using
        self._clock = clock
        self._due = clock()
        self._announced: dict[bytes, SchemaEntry] = {}
        self._problem = ""

    def run(self) -> None:
        """Do what is due."""
        if self._clock() < self._due:
            return
        try:
            self._announce()
        except ServiceError as error:
            if str(error) != self._problem:
                _LOG.warning("log tables are not ready for all tables yet (tried again): %s", error)
            self._problem = str(error)
        else:
            self._problem = ""
        self._due = self._clock() + _SECONDS

    def close(self) -> None:
        """Leave Kafka."""
        self._schemas.close()

    def _announce(self) -> None:
        if not isinstance(self._sink, AnnouncedSink):
            return
        self._schemas.refresh()
        news = self._news()
        if not news:
            return
        with self._using:
            self._sink.announce((entry.announced, entry.table) for entry in news.values())
        self._announced |= news

    def _news(self) -> Mapping[bytes, SchemaEntry]:
        """Definitions that the sink has not been given yet, in the order of their announcement."""
        news = {
            schema_id: entry
            for schema_id, entry in self._schemas.items()
            if schema_id not in self._announced and entry.part == "value" and self._reads(entry.topic)
        }
        return dict(sorted(news.items(), key=lambda item: item[1].announced))
