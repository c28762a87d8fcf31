"""A table's updates in a log table's rows, and these in batches that Cassandra takes as one mutation each. No I/O."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from tailrace_schemas.tokens import token
from tailrace_spark.batch.delivery import Delivered
from tailrace_spark.sinks.cassandra.cluster import Batch
from tailrace_spark.sinks.cassandra.log.rows import LogRow

# Of one partition, so one mutation to Cassandra; far below the least that any segment size allows.
_BATCH_ROWS: Final = 32
_BATCH_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Target:
    """An existing log table, and what a definition's changes write into it.

    `columns`: the log's columns in the order of `statement`, each with the name that the definition has for it.
    """

    columns: Mapping[str, str]
    statement: str


@dataclass(frozen=True, slots=True)
class Update:
    """One update's rows, and the places of its changes."""

    target: Target | None
    rows: list[LogRow]
    changes: tuple[Delivered, ...]


def updates_of(changes: Iterable[Delivered]) -> Iterator[tuple[Delivered, ...]]:
    for _, together in groupby(changes, _mutation):
        yield tuple(together)


def was_streamed(changes: tuple[Delivered, ...]) -> bool:
    source = changes[0].change.source
    return source is not None and source.streamed


def _mutation(delivered: Delivered) -> tuple[object, ...]:
    record_id, source = delivered.record_id, delivered.change.source
    if source is None:
        return record_id.topic, record_id.partition, record_id.offset
    return record_id.topic, record_id.partition, source.host, source.position, source.origin


def batches_of(updates: Iterable[Update], ttl_seconds: int) -> Iterator[Batch]:
    """The rows by statement and stream, in batches that Cassandra takes as one mutation each."""
    by_stream: dict[tuple[str, bytes], list[tuple[bytes | None, ...]]] = {}
    for update in updates:
        if update.target is not None:
            for row in update.rows:
                bound = _bound(update.target, row, ttl_seconds)
                by_stream.setdefault((update.target.statement, row.stream), []).append(bound)
    for (statement, stream), rows in by_stream.items():
        stream_token = token(stream)
        some: list[tuple[bytes | None, ...]] = []
        size = 0
        for values in rows:
            weight = sum(len(value) for value in values if value is not None)
            if some and (len(some) >= _BATCH_ROWS or size + weight > _BATCH_BYTES):
                yield Batch(statement, tuple(some), stream_token)
                some, size = [], 0
            some.append(values)
            size += weight
        yield Batch(statement, tuple(some), stream_token)


def _bound(target: Target, row: LogRow, ttl_seconds: int) -> tuple[bytes | None, ...]:
    values = [row.values.get(name) for name in target.columns.values()]
    return (*values, struct.pack(">q", row.written), struct.pack(">i", ttl_seconds))
