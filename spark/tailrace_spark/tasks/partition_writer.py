"""A task's work: stream ids, filters, decoding, masks, and the sink's own writer, Kafka partition by partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast

from tailrace_schemas.masks import Masks
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.shaping import Filters, TaskFilters
from tailrace_spark.shaping.masks import masked
from tailrace_spark.sinks.protocol import DataWriter, HereOnlyError
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.copies import Copies
from tailrace_spark.source.decode import pieces
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.streams.worker_imports import begin_task
from tailrace_spark.tasks.attempt import attempt
from tailrace_spark.tasks.outcome import RecordCounts, row_of
from tailrace_spark.tasks.record_counts import all_owned, counts_of, traces_of
from tailrace_spark.tasks.runs import partition_runs
from tailrace_spark.tasks.schemas import TaskSchemas
from tailrace_spark.tasks.updates import PartitionUpdates, UpdateReading


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes the records of a task. It is pickled with the task; its broadcasts stay with each worker process.

    `generations` and `schemas` are complete for the batch; `known_until` is the generations' (StreamTable).
    `partitions` counts those of each topic (TaskRunner.run). `updates`: the sink is given whole table updates.
    `read_back` adds what the log leaves open.
    """

    writer: DataWriter
    generations: Broadcast[StreamTable]
    known_until: int | None
    schemas: Broadcast[TaskSchemas]
    prefix: str
    partitions: Mapping[str, int | None]
    masks: Masks | None
    early: bool
    updates: UpdateReading | None
    filters: TaskFilters | None = None
    read_back: ReadBack | None = None

    def outcomes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The outcome of each Kafka partition in a task's records of `with_head`; for mapInArrow."""
        begin_task()
        for partition, batches_of_partition in partition_runs(batches):
            yield row_of(attempt(self.writer, partition, _PartitionRecords(self, partition, batches_of_partition)))


class _PartitionRecords:
    """As PartitionRecords."""

    def __init__(self, writer: PartitionWriter, partition: KafkaPartition, batches: Iterator[pa.RecordBatch]) -> None:
        self._writer = writer
        self._partition = partition
        self._batches = batches
        self._end = 0
        self._copies: Copies | None = None
        self.counts = RecordCounts()

    def one_copy(self, truncated: Callable[[Table], bool]) -> Iterator[Piece]:
        """As CopiedPieces says."""
        read_back = self._writer.read_back
        self._copies = Copies(truncated, None if read_back is None else read_back.asks)
        return iter(self)

    def __iter__(self) -> Iterator[Piece]:
        masks = self._writer.masks
        return iter(self._unmasked() if masks is None else masked(self._unmasked(), masks))

    def _unmasked(self) -> Iterator[Piece]:
        writer = self._writer
        table = replace(writer.generations.value, known_until=writer.known_until)
        decoded = self._decoded(table)
        if writer.read_back is not None:
            return writer.read_back.added(decoded)
        if writer.updates is None:
            return decoded
        updates = PartitionUpdates(writer.updates, self._partition, table, writer.schemas.value, writer.early)
        return writer.updates.finished(updates.whole(decoded, lambda: self._end))

    def _decoded(self, table: StreamTable) -> Iterator[Piece]:
        writer, (topic, partition) = self._writer, self._partition
        schemas = writer.schemas.value
        filters = None
        if writer.filters is not None:
            conditions, written = writer.filters.conditions, writer.filters.written
            filters = Filters(conditions, written=written, newest=lambda changed, _: schemas.newest(changed))
        for batch in self._batches:
            records = assigned_here(pa.Table.from_batches([batch]), table, writer.prefix)
            count = writer.partitions[topic]
            if count is not None and not all_owned(records, partition, count):
                raise HereOnlyError(f"{topic}, partition {partition}, has keys that another partition has")
            self.counts += replace(counts_of(records), traces=traces_of(batch))
            self._end = pc.max(records.column("offset")).as_py() + 1
            decoded = pieces(records, schemas, early=writer.early, copies=self._copies)
            if filters is None:
                yield from decoded
            else:
                yield from filters.filtered(decoded)
                self.counts += RecordCounts(left_out=dict(filters.left_out))
