"""One table of a history: which records of Kafka it has, by what it notes, and its rows, one for each record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from tempfile import TemporaryFile
from typing import IO, Any, Final

import pyarrow as pa

from tailrace_schemas.change import record_times
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId, RecordKey
from tailrace_spark.sinks.arrow.change_columns import Ends
from tailrace_spark.sinks.arrow.types import conform, nearest, relabelled_batch, sayable, within
from tailrace_spark.sinks.changelog.routes import day_of
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, stream_value
from tailrace_spark.sinks.lake.store import LakeTable

IN_MEMORY: Final = 64 << 20
"""Bytes, of one table."""
_PLACE: Final = ("topic", "partition", "offset")


class Spool:
    """Batches of one table, in their order, whose columns may become more from one to the next."""

    def __init__(self, schema: Any, limit: int = IN_MEMORY) -> None:
        """`schema` is the table's, and may be changed to one that has more columns."""
        self.schema = schema
        self.rows = 0
        self._limit = limit
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._file: IO[bytes] | None = None
        self._at: list[int] = []

    def add(self, batch: Any) -> None:
        """Take a RecordBatch, whose columns `schema` has. Raises OSError as files do."""
        self.rows += len(batch)
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes > self._limit:
            self._spill()

    def reader(self) -> Any:
        """All of them as one RecordBatchReader, of `schema`; to be read once."""
        return pa.RecordBatchReader.from_batches(self.schema, self._all())

    def close(self) -> None:
        """Let go of memory and file; more than once is fine."""
        self._waiting = []
        if self._file is not None:
            self._file.close()

    def _spill(self) -> None:
        if self._file is None:
            self._file = TemporaryFile(prefix="tailrace-delta-")  # noqa: SIM115 - closed by `close`
        for batch in self._waiting:
            self._at.append(self._file.tell())
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            with pa.ipc.new_stream(pa.PythonFile(self._file, mode="w"), batch.schema, options=options) as writer:
                writer.write_batch(batch)
        self._waiting, self._waiting_bytes = [], 0

    def _all(self) -> Iterator[Any]:
        for start in self._at:
            if self._file is not None:
                self._file.seek(start)
                yield from (conform(batch, self.schema) for batch in pa.ipc.open_stream(self._file))
        yield from (conform(batch, self.schema) for batch in self._waiting)


def application(topic: str, partition: int) -> str:
    """The application id under which a table notes the next offset of a partition of Kafka."""
    return f"tailrace/{topic}/{partition}"


@dataclass(frozen=True, slots=True)
class Route:
    """Where a definition's changes go; `numbers` is what a record is in Arrow, `schema` what it is in the lake.

    `labels` is `numbers` with the lake's names.
    """

    table: Table  # kept, so that its id stays its own
    numbers: Any
    labels: Any
    schema: Any
    name: str


@dataclass(slots=True)
class HistoryTable:
    """One table of a batch: as it was when it was opened, what goes in, and how far that moves each partition."""

    stored: LakeTable
    spool: Spool
    route: Route | None = None
    waiting: list[OutgoingRecord] = field(default_factory=list)
    waiting_bytes: int = 0
    ends: Ends = field(init=False)

    def __post_init__(self) -> None:
        self.ends = Ends(self._end)

    def take(self, record_id: RecordId) -> bool:
        """Whether a record is not there yet; then it moves the end of its partition."""
        new = self.ends.new(record_id)
        if new:
            self.ends.move(record_id)
        return new

    @property
    def moved(self) -> dict[str, int]:
        """What is noted with the rows: the next offset of each partition of Kafka that some of them come from."""
        return {application(*source): end for source, end in self.ends.moved.items()}

    def places(self, offsets: Sequence[int]) -> set[RecordKey]:
        """The places of the rows that are there at these offsets."""
        rows = self.stored.read(_PLACE, [("offset", "in", list(offsets))])
        return set(zip(*(rows[name].to_pylist() for name in _PLACE), strict=True))

    def _end(self, topic: str, partition: int) -> int:
        return self.stored.version_of(application(topic, partition)) or 0


def rows_of(route: Route, records: Sequence[OutgoingRecord]) -> Any:
    """The RecordBatch of a definition's changes, one row each."""
    rows = [{**record.record_id.to_json(), **stream_value(record.assignment), **record.record} for record in records]
    days = pa.array([date.fromisoformat(day_of(record_times(record.change)[0])) for record in records], pa.date32())
    batch = _arrow(rows, route.numbers)
    if not all(map(sayable, batch.columns)):
        batch = _arrow([within(route.table, row, nearest) for row in rows], route.numbers)
    batch = relabelled_batch(batch, route.labels)
    batch = conform(batch, pa.schema([route.schema.field(name) for name in route.numbers.names]))
    return pa.RecordBatch.from_arrays([*batch.columns, days], schema=route.schema)


def _arrow(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
