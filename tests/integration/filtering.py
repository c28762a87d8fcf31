"""Filters as a stream's driver asks them and as its tasks do, with one outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tailrace_schemas.avro import Encoder, SchemaEntry
from tailrace_schemas.change import Change
from tailrace_schemas.streams import build_generation
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Summary
from tailrace_spark.batch.task_batch import PartitionResult
from tailrace_spark.shaping.change_filters import Filters
from tailrace_spark.shaping.task_filters import task_filters
from tailrace_spark.source.kafka import with_head
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.job import TaskRunner, TaskSettings
from tailrace_spark.tasks.outcome import DriverOnly, Written
from tests.integration.feed import RING
from tests.unit.spark.cassandra import source

if TYPE_CHECKING:
    from tailrace_spark.sinks.protocol import PartitionTask

Judge = Callable[[Filters, Sequence[Delivered]], Piece]
"""What a filter makes of changes whose offsets are their numbers."""


def delivered(*changes: Change) -> list[Delivered]:
    return [Delivered(RecordId("t", 0, number), change) for number, change in enumerate(changes)]


def by_driver(filters: Filters, changes: Sequence[Delivered]) -> Piece:
    [piece] = filters.filtered([Piece(tuple(changes))])
    return piece


def by_tasks(filters: Filters, changes: Sequence[Delivered]) -> Piece:
    """A task for each table's topic; where only the driver can judge the changes, it does, as in a stream."""
    schemas, rows = _published(changes), []
    for number, delivered in enumerate(changes):
        change = delivered.change
        topic = f"t.{change.table}"
        value = Encoder(change.table, "t").value(
            replace(change, digest=change.digest or bytes(16), source=change.source or source())
        )
        rows.append((topic, 0, number, datetime.now(UTC), value))
    frame = filters.spark.createDataFrame(
        sorted(rows), "topic string, partition int, offset long, timestamp timestamp, value binary"
    )
    topics = {topic: 1 for topic, *_ in rows}
    generations = StreamTable.of([build_generation(RING, 1, timestamp=0, seed=1)])
    runner = TaskRunner(filters.spark, TaskSettings("t", None, early=False, mixed=True))
    plan = task_filters(filters, schemas, topics)
    outcomes = runner.run(with_head(frame), _keeping(), generations, schemas, topics, frozenset(), plan)
    if any(isinstance(outcome, DriverOnly) for outcome in outcomes):
        return by_driver(filters, changes)
    passed: set[int] = set()
    letters: list[DeadLetter] = []
    filters.left_out.clear()
    for outcome in outcomes:
        assert isinstance(outcome, Written)
        filters.left_out.update(outcome.counts.left_out)
        detail: Any = outcome.result.detail
        passed |= set(detail[0])
        letters += [DeadLetter(changes[number].record_id, reason) for number, reason in detail[1]]
    return Piece(tuple(one for number, one in enumerate(changes) if number in passed), tuple(letters))


JUDGES: dict[str, Judge] = {"driver": by_driver, "executors": by_tasks}


def _published(changes: Sequence[Delivered]) -> dict[bytes, SchemaEntry]:
    tables: dict[int, tuple[Table, int]] = {id(one.change.table): (one.change.table, one.announced) for one in changes}
    schemas = {}
    for table, announced in tables.values():
        encoder = Encoder(table, "t")
        schemas[encoder.schema_id] = SchemaEntry(
            schema_id=encoder.schema_id,
            topic=f"t.{table}",
            table=table,
            avro=encoder.schema_text,
            announced=announced,
        )
    return schemas


def _keeping() -> PartitionTask:
    """A task that writes nothing, and reports what it was given; executors do not have this module."""

    class Keep:
        def write(self, partition: KafkaPartition, pieces: Sequence[Piece]) -> PartitionResult:
            offsets: list[int] = []
            letters: list[tuple[int, str]] = []
            for piece in pieces:
                offsets += [one.record_id.offset for one in piece.changes]
                letters += [(one.record_id.offset, one.reason) for one in piece.dead_letters]
            return PartitionResult(partition, Summary(), (offsets, letters))

    return Keep()  # type: ignore[return-value]  # of fewer pieces than a task may be given
