"""One table of a history: which records of Kafka it has, by what it notes, and its rows, one for each record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.change import record_times
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import RecordId, RecordKey
from tailrace_spark.sinks.arrow.change_columns import Ends
from tailrace_spark.sinks.arrow.date_range import within
from tailrace_spark.sinks.arrow.relabel import relabelled_batch
from tailrace_spark.sinks.arrow.types import conform, sayable
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, stream_value
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.store import LakeTable, Number

_PLACE: Final = ("topic", "partition", "offset")


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
        rows = self.stored.read(_PLACE, Number("offset").among(offsets))
        return set(zip(*(rows[name].to_pylist() for name in _PLACE), strict=True))

    def _end(self, topic: str, partition: int) -> int:
        return self.stored.version_of(application(topic, partition)) or 0


def rows_of(route: Route, records: Sequence[OutgoingRecord]) -> Any:
    """The RecordBatch of a definition's changes, one row each."""
    rows = [{**record.record_id.to_json(), **stream_value(record.assignment), **record.record} for record in records]
    days = pa.array([date.fromisoformat(day_of(record_times(record.change)[0])) for record in records], pa.date32())
    batch = _arrow(rows, route.numbers)
    if not all(map(sayable, batch.columns)):
        batch = _arrow([within(route.table, row) for row in rows], route.numbers)
    batch = relabelled_batch(batch, route.labels)
    batch = conform(batch, pa.schema([route.schema.field(name) for name in route.numbers.names]))
    return pa.RecordBatch.from_arrays([*batch.columns, days], schema=route.schema)


def _arrow(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    arrays = [pa.array([row.get(field.name) for row in rows], type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
