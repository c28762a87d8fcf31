"""The generations that a cluster has announced, read from their topic and looked up by write time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol, Self

from tailrace_common.closing import Closing
from tailrace_common.kafka import PartitionReader, Record
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import Expired, GenerationLog, Ignored, PublishedGeneration
from tailrace_schemas.streams import LEEWAY_MS, Mark

_LOG: Final = logging.getLogger("tailrace.generations")

WallClock = Callable[[], float]


class PartitionSource(Protocol):
    """A partition that is read on from where the last reading ended (tailrace_common.kafka.PartitionReader)."""

    def read_to_end(self) -> Iterator[Record]:
        """The records not read yet, up to the end that the partition has now. Raises ServiceError."""

    def close(self) -> None:
        """Let go of the connection."""


class GenerationReader(Closing):
    """Valid generations, as far as `refresh` has read; one thread at a time. `now` is wall time in seconds.

    The reader owns the source: `close` it, or use it in a `with`.
    """

    def __init__(self, source: PartitionSource, now: WallClock = time.time) -> None:
        self._source = source
        self._now = now
        self._log = GenerationLog()
        self.known_until: int | None = None
        """Milliseconds: for write times up to here the answer can never change (contracts.md 5)."""

    @classmethod
    def open(cls, config: Mapping[str, Scalar], topic: str) -> Self:
        """A reader of `<prefix>.generations`, by librdkafka's configuration. Nothing connects before `refresh`."""
        return cls(PartitionReader(config, topic, 0))

    def refresh(self) -> tuple[PublishedGeneration, ...]:
        """Read to the end of the topic; every valid generation that is not gone, ascending by timestamp.

        What is announced after this call begins is at least LEEWAY_MS ahead of it, as far as our clock and the
        broker's agree. Raises ServiceError when the end cannot be reached, UnsupportedError for another version.
        """
        began = self._now()
        for record in self._source.read_to_end():
            event = self._log.feed(record.offset, record.timestamp, record.key, record.value)
            if isinstance(event, Ignored):
                _LOG.debug("generations: ignored the record at offset %d: %s", event.offset, event.reason)
            elif isinstance(event, Expired):
                _LOG.info("generations before %s were removed by retention: %s", _utc(event.oldest), event.gone)
            elif event is not None:
                _LOG.info("generation %s is in effect from %s on", event.uuid, _utc(event.timestamp))
        self.known_until = int(began * 1000) + LEEWAY_MS
        return self._log.published

    @property
    def published(self) -> tuple[PublishedGeneration, ...]:
        """The valid generations read so far, ascending by timestamp."""
        return self._log.published

    @property
    def latest(self) -> PublishedGeneration | None:
        """The last generation read so far; None when there is none."""
        return self._log.latest

    def operating(self, written: int) -> tuple[PublishedGeneration, Mark | None]:
        """The generation that operated at a write time (microseconds), and a mark, if any.

        Raises ServiceError when no generation is known: hold what belongs to it, refresh, and ask again.
        """
        operating = self._log.operating(written, self.known_until)
        if operating is None:
            raise ServiceError("the generations topic has no valid generation yet: is an agent running?")
        return operating

    def close(self) -> None:
        """Close the source."""
        self._source.close()


def _utc(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
