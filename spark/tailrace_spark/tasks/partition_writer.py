"""A task's work: stream ids, filters, decoding, masks, and the sink's own writer, Kafka partition by partition."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Final, Protocol, Self
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Broadcast

from tailrace_common.kafka import PartitionReader, Record
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Change, Op
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError
from tailrace_schemas.masks import Masks
from tailrace_schemas.table import Table
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.batch.pieces import one_copy
from tailrace_spark.shaping import Filters
from tailrace_spark.shaping.shape import masked
from tailrace_spark.sinks.protocol import Capabilities, DataWriter, HereOnlyError
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.decode import Copies, pieces
from tailrace_spark.source.table_updates import Updates, WriteTimes, with_streams, with_transactions
from tailrace_spark.streams.assign import assigned_here, begin_task
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.outcome import (
    HereOnly,
    Outcome,
    RecordCounts,
    Written,
    all_owned,
    counts_of,
    failed,
    row_of,
    traces_of,
)

RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary()),
        ("generation", pa.int64()), ("stream_id", pa.binary()),
    ]
)  # fmt: skip
"""The columns of records that `source.decode` takes."""
Run = tuple[KafkaPartition, pa.RecordBatch]


@dataclass(frozen=True)
class TaskSchemas(Mapping[bytes, SchemaEntry]):
    """Every published schema by its id, as SchemaReader has them, complete at the time of the batch.

    A process looks up few of thousands: each is unpickled when it is looked up first.
    """

    pickled: Mapping[bytes, bytes]
    newest_ids: Mapping[UUID, bytes]
    _entries: dict[bytes, SchemaEntry] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, entries: Mapping[bytes, SchemaEntry]) -> Self:
        """A copy of these."""
        by_announcement = sorted(entries.items(), key=lambda item: item[1].announced)
        newest_ids = {entry.table.id: schema_id for schema_id, entry in by_announcement if entry.part == "value"}
        return cls({schema_id: pickle.dumps(entry) for schema_id, entry in entries.items()}, newest_ids)

    def __getitem__(self, schema_id: bytes) -> SchemaEntry:
        entry = self._entries.get(schema_id)
        if entry is None:
            entry = self._entries[schema_id] = _entry_of(self.pickled[schema_id])
        return entry

    def newest(self, table: Table) -> Table:
        """The newest definition of a table that has one here."""
        return self[self.newest_ids[table.id]].table

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.pickled)

    def __len__(self) -> int:
        return len(self.pickled)

    def __reduce__(self) -> tuple[type[Self], tuple[Mapping[bytes, bytes], Mapping[UUID, bytes]]]:
        """Without the entries."""
        return type(self), (self.pickled, self.newest_ids)


@cache
def _entry_of(pickled: bytes) -> SchemaEntry:
    """One object for all that were sent: where a schema is new all are sent again, of whatever tables.

    Sinks keep what they make of a definition by its identity, for good, and so does this.
    """
    entry: SchemaEntry = pickle.loads(pickled)  # noqa: S301 - our driver's bytes, sent by Spark
    return entry


@dataclass(frozen=True, slots=True)
class UpdateReading:
    """How updates are put together: `write_times` are the sink's (UpdateSink), `kafka` is librdkafka's, for tasks.

    `transactions`: each change gets its transaction.
    """

    write_times: WriteTimes
    kafka: Mapping[str, Scalar] = field(repr=False)
    transactions: bool = False

    def finished(self, pieces_of: Iterable[Piece]) -> Iterator[Piece]:
        """Pieces with whole updates, as the sink takes them."""
        return with_transactions(pieces_of) if self.transactions else iter(pieces_of)


def update_reading(capabilities: Capabilities, kafka: Mapping[str, Scalar]) -> UpdateReading | None:
    """How updates are put together for a sink; None for one that takes changes one by one."""
    if (update_sink := capabilities.whole_updates) is not None:
        return UpdateReading(update_sink.write_times, kafka)
    return UpdateReading(_no_times, kafka, transactions=True) if capabilities.transactions else None


def _no_times(change: Change) -> tuple[int, ...]:
    """The stream that a change has already is enough. At the module's level, as tasks pickle it."""
    del change
    return ()


@dataclass(frozen=True, slots=True)
class PartitionUpdates:
    """Puts the updates of a Kafka partition's records together, as source.table_updates does on the driver."""

    reading: UpdateReading
    partition: KafkaPartition
    table: StreamTable
    schemas: Mapping[bytes, SchemaEntry]
    early: bool

    def whole(self, pieces_of: Iterable[Piece], end: Callable[[], int]) -> Iterator[Piece]:
        """The pieces with whole updates; `end` gives the offset behind the last one's records once all are read.

        Raises HereOnlyError where the rest of an update is not in Kafka yet, ServiceError where Kafka does not
        answer.
        """
        updates = Updates()
        yield from updates.whole(map(self._with_streams, pieces_of))
        if updates.waiting:
            yield from self._rest(updates, end())

    def _rest(self, updates: Updates, offset: int) -> Iterator[Piece]:
        with PartitionReader(self.reading.kafka, *self.partition, begin=offset) as reader:
            for record in reader.read_to_end():
                for delivered in self.decoded(record).changes:
                    for update in updates.feed_rest(delivered):
                        yield Piece(tuple(update))
                if not updates.waiting:
                    return
        # The driver waits for it, and knows for how long.
        raise HereOnlyError("the rest of a mutation is not in Kafka yet: {}, partition {}".format(*self.partition))

    def decoded(self, record: Record) -> Piece:
        """A piece of one record of the partition, as a batch has it."""
        topic, partition = self.partition
        row = {"topic": topic, "partition": partition, "offset": record.offset, "value": record.value}
        [piece] = pieces(pa.Table.from_pylist([row], schema=RECORDS), self.schemas, early=self.early)
        return self._with_streams(piece)

    def _with_streams(self, piece: Piece) -> Piece:
        return with_streams(piece, self.table, self.reading.write_times)


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What holds for all tasks of a stream. `mixed`: a task may be given records of any partitions, in any order.

    `sorted`: each partition's records come in one task by offset, however they were read. `updates` are for sinks that
    take updates whole. `per_core`: at most so many tasks of a batch for each core, if they are neither.
    """

    prefix: str
    masks: Masks | None
    early: bool
    mixed: bool
    sorted: bool = False
    updates: UpdateReading | None = None
    filters: partial[Filters] | None = None
    per_core: int = 1


@dataclass(frozen=True, slots=True)
class PartitionWriter:
    """Writes the records of a task. It is pickled with the task; its broadcasts stay with each worker process.

    `generations` and `schemas` are complete for the batch; `known_until` is the generations' (StreamTable).
    `partitions` counts those of each topic (TaskRunner.run). `read_back` adds what the log leaves open.
    """

    writer: DataWriter
    generations: Broadcast[StreamTable]
    known_until: int | None
    schemas: Broadcast[TaskSchemas]
    partitions: Mapping[str, int]
    settings: TaskSettings
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
        masks = self._writer.settings.masks
        return iter(self._unmasked() if masks is None else masked(self._unmasked(), masks))

    def _unmasked(self) -> Iterator[Piece]:
        writer, settings = self._writer, self._writer.settings
        table = replace(writer.generations.value, known_until=writer.known_until)
        decoded = self._decoded(table)
        if writer.read_back is not None:
            return writer.read_back.added(decoded)
        if settings.updates is None:
            return decoded
        updates = PartitionUpdates(settings.updates, self._partition, table, writer.schemas.value, settings.early)
        return settings.updates.finished(updates.whole(decoded, lambda: self._end))

    def _decoded(self, table: StreamTable) -> Iterator[Piece]:
        writer, (topic, partition) = self._writer, self._partition
        schemas, settings = writer.schemas.value, writer.settings
        filters: Filters | None = None
        if settings.filters is not None:
            filters = settings.filters(newest=lambda changed, _: schemas.newest(changed))
        for batch in self._batches:
            records = assigned_here(pa.Table.from_batches([batch]), table, settings.prefix)
            if not all_owned(records, partition, writer.partitions[topic]):
                raise HereOnlyError(f"{topic}, partition {partition}, has keys that another partition has")
            self.counts += replace(counts_of(records), traces=traces_of(batch))
            self._end = pc.max(records.column("offset")).as_py() + 1
            decoded = pieces(records, schemas, early=settings.early, copies=self._copies)
            if filters is None:
                yield from decoded
            else:
                yield from filters.filtered(decoded)
                self.counts += RecordCounts(left_out=dict(filters.left_out))


def partition_runs(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[KafkaPartition, Iterator[pa.RecordBatch]]]:
    """Each Kafka partition with its batches, in the order in which they come.

    A partition's records stand together in a task, as Kafka's source and a sort bring them. What is left of a
    partition's batches is passed over when the next one is asked for.
    """
    for partition, runs in groupby(_cut(batches), key=itemgetter(0)):
        yield partition, (batch for _, batch in runs)


def _cut(batches: Iterable[pa.RecordBatch]) -> Iterator[Run]:
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = batch.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False)
        numbers = batch.column("partition").to_numpy(zero_copy_only=False)
        ends = np.flatnonzero((np.diff(codes) != 0) | (np.diff(numbers) != 0)) + 1
        begin = 0
        for end in [*ends.tolist(), batch.num_rows]:
            name = topics.dictionary[int(codes[begin])].as_py()
            yield (name, int(numbers[begin])), batch.slice(begin, end - begin)
            begin = end


class PartitionRecords(Iterable[Piece], Protocol):
    """The pieces of a Kafka partition's records, read once. Reading may raise HereOnlyError."""

    @property
    def counts(self) -> RecordCounts:
        """Of all records, known behind the last piece."""


def attempt(writer: DataWriter, partition: KafkaPartition, records: PartitionRecords) -> Outcome:
    """What the driver is told. Raises what it cannot be told: Spark repeats the task then."""
    try:
        message = writer.write(partition, Untruncated(records))
    except HereOnlyError as error:
        return HereOnly(partition, str(error))
    except (ServiceError, SettingsError, FencedError) as error:
        return failed(partition, error)
    return Written(message, records.counts)


@dataclass(frozen=True, slots=True)
class Untruncated(Iterable[Piece]):
    """The pieces of a share. A truncation is of the keys of all shares, which are written in no order.

    At one, reading raises HereOnlyError.
    """

    pieces: Iterable[Piece]

    def __iter__(self) -> Iterator[Piece]:
        return without_truncations(self.pieces)

    def one_copy(self, truncated: Callable[[Table], bool]) -> Iterator[Piece]:
        """As CopiedPieces says."""
        return without_truncations(one_copy(self.pieces, truncated))


def without_truncations(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """The pieces. Raises HereOnlyError at one with a truncation, of which nothing is given then."""
    for piece in pieces:
        for delivered in piece.changes:
            if delivered.change.op is Op.TRUNCATE:
                raise HereOnlyError(f"a truncation of {delivered.change.table}, which is of all keys")
        yield piece
