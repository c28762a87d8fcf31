"""The records of a micro-batch, collected on the driver, and the pieces that a sink takes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from tailrace_common.settings import Settings
from tailrace_common.topics import SchemaReader
from tailrace_common.tracing.spans import TRACEPARENT
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import Piece
from tailrace_spark.job.parts import part_bytes, parts_of, with_values, without_large
from tailrace_spark.shaping import Shape
from tailrace_spark.sinks.protocol import Sink
from tailrace_spark.snapshot.read_back import ReadBack
from tailrace_spark.source.decode import BY_OFFSET, pieces
from tailrace_spark.source.kafka import read_some, with_head
from tailrace_spark.source.table_updates import WholeUpdates, with_streams
from tailrace_spark.streams.assign import assigned_here
from tailrace_spark.streams.lookup import StreamTable
from tailrace_spark.tasks.updates import update_reading

_REST_RECORDS: Final = 2_000


class BatchRecords:
    """Collects the records of batches for one sink. Memory is bounded by `part_bytes`."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        sink: Sink,
        shape: Shape | None,
        schemas: SchemaReader,
        read_back: Callable[[], ReadBack | None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._settings = settings
        self._sink = sink
        self._shape = shape
        self._schemas = schemas
        self.read_back = read_back
        self.part_bytes = part_bytes(spark, settings)

    def collect(self, heads: DataFrame, table: StreamTable, limit: int) -> Any:
        """Collect at most `limit` records into a pyarrow Table, with their streams and sizes.

        Values that would make them more than `part_bytes` are left out: `with_values` reads them again. All records
        come to the driver, since assigning them takes less than handing them to Python workers.
        """
        bounded = without_large(heads, self.part_bytes // max(1, limit))
        # A task for each core reads several partitions of Kafka, one after another: a task for each partition of a
        # small batch costs more than its records.
        few = bounded.coalesce(self._spark.sparkContext.defaultParallelism)
        records = few.toArrow()
        assigned = assigned_here(records, table, self._settings.topics.prefix)
        for name in ("size", TRACEPARENT):
            if name in records.column_names:
                assigned = assigned.append_column(name, records.column(name))
        return assigned

    def schemas_now(self) -> dict[bytes, SchemaEntry]:
        """All of `.schemas`, read to its end: decoding reads on only for an id that it lacks, not for one announced
        again. Raises ServiceError where Kafka does not answer.
        """
        self._schemas.refresh()
        return dict(self._schemas)

    def parts(self, records: Any) -> list[Any]:
        """Collected records in parts of at most `part_bytes`."""
        return parts_of(records, self.part_bytes)

    def pieces(self, records: Any, table: StreamTable) -> Callable[[], Iterable[Piece]]:
        """A function that gives the pieces of a part as the sink takes them, as often as it is called."""
        capabilities, early = self._sink.capabilities, self._settings.stream.accept_early
        complete = self._with_values(records)
        if (reading := update_reading(capabilities, {})) is None:
            ordered = complete.sort_by(BY_OFFSET) if capabilities.ordered else complete
            return partial(self._shaped, self._completed(partial(pieces, ordered, self._schemas, early=early)))
        by_offset = complete.sort_by(BY_OFFSET)

        def decoded(batch: Any) -> Iterator[Piece]:
            for piece in pieces(batch, self._schemas, early=early):
                yield with_streams(piece, table, reading.write_times)

        def read_on(partition: KafkaPartition, offset: int) -> tuple[Iterable[Piece], int | None]:
            heads = with_head(read_some(self._spark, self._settings, partition, offset, _REST_RECORDS))
            rest = self.collect(heads, table, _REST_RECORDS).sort_by(BY_OFFSET)
            first = self._with_values(self.parts(rest)[0])
            unread = rest.num_rows == _REST_RECORDS or first.num_rows < rest.num_rows
            return decoded(first), first.column("offset")[-1].as_py() + 1 if unread else None

        updates = WholeUpdates(partial(decoded, by_offset), _ends_of(by_offset), read_on)
        return lambda: reading.finished(updates)

    def _completed(self, read: Callable[[], Iterable[Piece]]) -> Callable[[], Iterable[Piece]]:
        """With what the log leaves open."""
        read_back = self.read_back()
        return read if read_back is None else lambda: read_back.added(read())

    def _with_values(self, part: Any) -> Any:
        return with_values(self._spark, self._settings, part, self.part_bytes)

    def _shaped(self, read: Callable[[], Iterable[Piece]]) -> Iterable[Piece]:
        return read() if self._shape is None else self._shape.shaped(read())


def _ends_of(records: Any) -> dict[KafkaPartition, int]:
    """The offset behind each partition's last record."""
    last = records.group_by(["topic", "partition"]).aggregate([("offset", "max")])
    return {(row["topic"], row["partition"]): row["offset_max"] + 1 for row in last.to_pylist()}
