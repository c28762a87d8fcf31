"""Whole table updates in a task: what of an update is behind its batch's end is read from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tailrace_common.kafka import PartitionReader, Record
from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.change import Change
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.sinks.protocol import Capabilities, HereOnlyError
from tailrace_spark.source.decode import pieces
from tailrace_spark.source.table_updates import Updates, WriteTimes, with_streams
from tailrace_spark.source.transactions import with_transactions
from tailrace_spark.streams.lookup import StreamTable

RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary()),
        ("generation", pa.int64()), ("stream_id", pa.binary()),
    ]
)  # fmt: skip
"""The columns of records that `source.decode` takes."""


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
