"""Rows of a snapshot's round as records of a stream: as `tailrace_spark.source.kafka.with_head` gives those of Kafka.

A record's place says its round and its row. It is the same however often a range is read, so that sinks leave out what
they have. An offset is the round's number, then 44 bits of a hash of the row's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from tailrace_schemas.avro import Encoder
from tailrace_schemas.change import Op
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.tokens import partition
from tailrace_spark.snapshot.changes import TaskRecords, batch_of
from tailrace_spark.snapshot.page import ROW_BITS, Records
from tailrace_spark.snapshot.ranges import Split
from tailrace_spark.snapshot.reading import PageStateError, UnreadableError
from tailrace_spark.snapshot.session import TableReading, range_reader
from tailrace_spark.streams.assign import begin_task

SCHEMA: Final = pa.schema(
    [
        ("op", pa.string()), ("token", pa.int64()), ("written", pa.int64()), ("ttl", pa.int32()),
        ("expires", pa.int64()), ("digest", pa.binary()), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("schema_id", pa.binary()), ("published", pa.int64()), ("value", pa.binary()),
        ("slot", pa.int32()), ("problem", pa.string()), ("final", pa.bool_()),
    ]
)  # fmt: skip
"""Of what tasks give: records, or why a slot has none."""
HEAD: Final = tuple(SCHEMA.names[:-3])


@dataclass(frozen=True, slots=True)
class RoundPosition:
    """Where a round's records stand: in a topic of so many `partitions`, in that of their token, as changes of the log.

    So a sink that keeps the number of a change's partition has all changes of a key in one.
    """

    topic: str
    number: int
    partitions: int

    @property
    def first(self) -> int:
        """The first offset that a record of the round may have."""
        return self.number << ROW_BITS

    @property
    def end(self) -> int:
        """The offset behind all that records of the round may have."""
        return self.number + 1 << ROW_BITS

    def partition(self, token: int) -> int:
        """The partition of a record."""
        return partition(token, self.partitions)


@dataclass(frozen=True, slots=True)
class RoundReader:
    """Reads the slots of a round in tasks; it is pickled, with secrets.

    `tasks` has the numbers of each one's slots. `stays`: a node that does not answer fails a slot, and no other node is
    asked instead.
    """

    reading: TableReading
    slots: Sequence[Sequence[Split]]
    position: RoundPosition
    tasks: Sequence[Sequence[int]]
    stays: bool = False

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the tasks whose numbers come; for mapInArrow.

        A slot that cannot be read gives a row that says why in `problem`, and in `final` whether it will never be. An
        exception would have Spark try again at once, and its words in a trace.
        """
        begin_task()
        for batch in batches:
            for slot in [slot for task in batch.column(0).to_pylist() for slot in self.tasks[task]]:
                try:
                    yield from self._slot(slot)
                except (ServiceError, PageStateError) as error:
                    yield _problem(slot, str(error), final=isinstance(error, UnreadableError))

    def _slot(self, slot: int) -> Iterator[pa.RecordBatch]:
        reading = self.reading
        encoder = Encoder(reading.table, reading.settings.prefix)
        records = TaskRecords(reading.table, reading.shape.selected, encoder, reading.datacenter, counters=True)
        with range_reader(reading, len(self.tasks), stays=self.stays) as reader:
            for page in reader.pages(self.slots[slot]):
                yield self._batch(records.of(page), encoder.schema_id, slot)

    def _batch(self, records: Records, schema_id: bytes, slot: int) -> pa.RecordBatch:
        count = len(records.tokens)
        partitions = [self.position.partition(token) for token in records.tokens]
        first = self.position.first
        columns = (
            [Op.READ.value] * count, records.tokens, records.written, records.ttl, records.expires, records.digests,
            [self.position.topic] * count, partitions, [first + row_bits for row_bits in records.numbers],
            [schema_id] * count,
            # As if it was published when it was written: a row that is old is no late change.
            [written // 1000 for written in records.written], records.values, [slot] * count, [None] * count,
            [None] * count,
        )  # fmt: skip
        return batch_of(columns, SCHEMA)


def distinct_offsets(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records by partition and offset, where rows that have the same offset get the next ones; for mapInArrow."""
    last: tuple[int, int] | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        partitions = batch.column("partition").to_numpy(zero_copy_only=False)
        offsets = batch.column("offset").to_numpy(zero_copy_only=False).copy()
        starts = [0, *(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(offsets)]
        for start, end in pairwise(starts):
            if last is not None and last[0] == partitions[start]:
                offsets[start] = max(offsets[start], last[1] + 1)
            steps = np.arange(end - start)
            offsets[start:end] = np.maximum.accumulate(offsets[start:end] - steps) + steps
            last = int(partitions[start]), int(offsets[end - 1])
        index = batch.schema.get_field_index("offset")
        yield batch.set_column(index, batch.schema.field(index), pa.array(offsets))


def _problem(slot: int, words: str, *, final: bool) -> pa.RecordBatch:
    """The row of a slot that cannot be read."""
    return pa.RecordBatch.from_pylist([{"slot": slot, "problem": words, "final": final}], SCHEMA)
