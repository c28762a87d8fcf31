"""One table of a history: which records of Kafka it has, by what it notes, and its rows, one for each record."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Final

import pyarrow as pa

from tailrace_schemas.change import record_times
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.arrow.change_columns import Ends
from tailrace_spark.sinks.arrow.date_range import within
from tailrace_spark.sinks.arrow.relabel import relabelled_batch
from tailrace_spark.sinks.arrow.types import conform, sayable
from tailrace_spark.sinks.changelog.days import day_of
from tailrace_spark.sinks.changelog.sink import OutgoingRecord, stream_value
from tailrace_spark.sinks.lake.spool import Spool
from tailrace_spark.sinks.lake.store import LakeTable, Number

DEAD_LETTERS: Final = "tailrace.dead-letters"  # no CQL name has a hyphen
LETTERS: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("schema", pa.string()),
     ("reason", pa.string()), ("message", pa.binary())]
)  # fmt: skip
PLACE: Final = ("topic", "partition", "offset")
REPLAYS: Final = "tailrace/letters"
"""The application id under which a history counts what may have written places of dead letters: of two one fails."""


def application(topic: str, partition: int) -> str:
    """The application id under which a table notes the next offset of a partition of Kafka."""
    return f"tailrace/{topic}/{partition}"


def replays(topic: str, partition: int) -> str:
    """That under which it notes how far replays of dead letters wrote changes of one, each by its place."""
    return f"tailrace/letters/{topic}/{partition}"


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
    """One table of a batch: as it was when it was opened, what goes in, and how far that moves each partition.

    `lettered`: behind which offset a topic's partition has no dead letters.
    """

    name: str
    stored: LakeTable | None
    says: str
    spool: Spool
    partitioned_by: str | None = None
    lettered: Callable[[str, int], int] = lambda *_: 0
    route: Route | None = None
    waiting: list[OutgoingRecord] = field(default_factory=list)
    ends: Ends = field(init=False)

    def __post_init__(self) -> None:
        self.ends = Ends(self._end, self._replayed)

    def take(self, record_id: RecordId) -> bool:
        """Whether a record is not there yet; then it moves the end of its partition."""
        new = self.ends.new(record_id)
        if new:
            self.ends.move(record_id)
        return new

    @property
    def moved(self) -> dict[str, int]:
        """What is noted with the rows: the next offset of each partition of Kafka that some of them come from.

        A dead letter may be of a record among them, if a redelivered batch can be decoded now, and its replay under
        way. Then this has also what makes one of both fail.
        """
        noted = {application(*source): end for source, end in self.ends.moved.items()}
        if any(self._end(*source) < self.lettered(*source) for source in self.ends.moved):
            noted[REPLAYS] = self.noted(REPLAYS) + 1
        return noted

    def noted(self, application: str) -> int:
        """What the table notes under an application id; 0: nothing."""
        return 0 if self.stored is None else self.stored.version_of(application) or 0

    def _end(self, topic: str, partition: int) -> int:
        return self.noted(application(topic, partition))

    def _replayed(self, topic: str, partition: int) -> Collection[int]:
        """The offsets at the end and behind it that a replay of dead letters wrote."""
        end, upto = self._end(topic, partition), self.noted(replays(topic, partition))
        if self.stored is None or upto <= end:
            return ()
        offset = Number("offset")
        condition = Number("partition").equals(partition) & offset.above(end - 1) & offset.at_most(upto - 1)
        rows = self.stored.read(PLACE, condition).to_pylist()
        return frozenset(row["offset"] for row in rows if row["topic"] == topic)


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


def letter_rows(letters: Sequence[DeadLetter]) -> Any:
    """The RecordBatch of dead letters, one row each."""
    rows = [{**letter.record_id.to_json(), "reason": letter.reason, "message": letter.message} for letter in letters]
    return pa.RecordBatch.from_pylist(rows, schema=LETTERS)
