"""Generations and their streams, read from the description tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the driver's times are UTC without saying so


@dataclass(frozen=True)
class Generation:
    """One generation: it operates from `start` until the next one's, milliseconds; None while there is no next."""

    start: int
    end: int | None


class Descriptions:
    """The tables `cdc_generation_timestamps` and `cdc_streams_descriptions_v2` of one keyspace.

    A timestamp is written after all of its description, so what a timestamp names is complete. `consistency` must be
    one that sees every write: QUORUM where the tables were written so.
    """

    def __init__(self, session: Session, keyspace: str, consistency: int = ConsistencyLevel.QUORUM) -> None:
        self._session = session
        self._keyspace = keyspace
        self._consistency = consistency

    def generations(self) -> list[Generation]:
        """All that are announced, oldest first."""
        rows = self._rows(f"SELECT time FROM {self._keyspace}.cdc_generation_timestamps WHERE key = 'timestamps'")
        starts = sorted(_milliseconds(row[0]) for row in rows)
        return [Generation(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]

    def streams(self, generation: Generation) -> list[bytes]:
        """The stream ids of a generation, in order."""
        query = f"SELECT streams FROM {self._keyspace}.cdc_streams_descriptions_v2 WHERE time = %s"
        at = datetime.fromtimestamp(generation.start / 1000, UTC)
        return sorted(stream_id(stream) for row in self._rows(query, (at,)) for stream in row[0])

    def _rows(self, query: str, values: tuple[object, ...] | None = None) -> Iterable[Any]:
        return list(self._session.execute(SimpleStatement(query, consistency_level=self._consistency), values))


def stream_id(written: Any) -> bytes:
    """A stream id's 16 bytes; the tables have them as two signed words, or, in ScyllaDB 4.4 and later, as a blob."""
    if isinstance(written, bytes):
        return written
    return b"".join(word.to_bytes(8, "big", signed=True) for word in written)


def _milliseconds(time: datetime) -> int:
    return round((time - _EPOCH).total_seconds() * 1000)
