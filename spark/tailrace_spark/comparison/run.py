"""A comparison from the driver: digests of buckets, then the rows of those that differ, a second time after a while."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from tailrace_common.backoff import Timing
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.table import Table
from tailrace_schemas.tokens import token
from tailrace_spark.comparison.rows import (
    NO_ROWS,
    Buckets,
    ComparedRow,
    Difference,
    Digest,
    Kind,
    buckets_of,
    differences,
    removal,
    repair_of,
    with_rows,
)
from tailrace_spark.comparison.source import ReadTask, SinkTable, SourceRow, TaskFindings, source_rows
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.protocol import ComparableSink, StoredVisible, write_here
from tailrace_spark.snapshot.ranges import Split, deal, union
from tailrace_spark.snapshot.session import survey
from tailrace_spark.snapshot.settings import SnapshotSettings

Run = Callable[[Sequence[tuple[Split, ...]], ReadTask], Sequence[TaskFindings]]
"""Runs tasks on Spark's executors, and gives their outcomes."""
_MICROS: Final = 1_000_000
_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class Granularity:
    """How many buckets are compared at once, and how many rows of differing buckets the driver holds of each side."""

    buckets: int = 8_192
    rows: int = 250_000


@dataclass(frozen=True, slots=True)
class Compared:
    """What a comparison found. `rows` are the source's; `in_flight` rows differ, but were written a moment ago."""

    table: Table
    rows: int
    buckets: Buckets
    differences: dict[RowKey, Difference]
    in_flight: int


class Comparison:
    """Compares one table. `grace` is how many seconds a change may be on its way. Its methods raise ServiceError."""

    def __init__(
        self,
        settings: SnapshotSettings,
        sink: ComparableSink,
        run: Run,
        timing: Timing,
        grace: float,
        granularity: Granularity = Granularity(),
    ) -> None:
        self._survey = survey(settings)
        self.source = self._survey.reading
        self.target = SinkTable(sink, self.table)
        self._run = run
        self._timing = timing
        self._grace = grace
        self._granularity = granularity

    @property
    def table(self) -> Table:
        """The table, as the source has it now."""
        return self._survey.table

    def compare(self) -> Compared:
        """Compare all of it, and look a second time at what differs."""
        splits = self._survey.splits()
        buckets = buckets_of([split.range for split in splits], max(1, self._granularity.buckets // len(splits)))
        rows, differing = self._differing(splits, buckets)

        while sum(differing.values()) > self._granularity.rows:
            buckets = self._finer(buckets, differing)
            _, differing = self._differing(self.splits_of(buckets, range(len(buckets.ranges))), buckets)

        first = self.look(buckets, differing)
        if not first:
            return Compared(self.table, rows, buckets, {}, 0)

        self._timing.wait(self._grace)
        return self._second(rows, buckets, first)

    def look(self, buckets: Buckets, numbers: Collection[int]) -> dict[RowKey, Difference]:
        """How the rows of some buckets differ now."""
        if not numbers:
            return {}
        splits = self.splits_of(buckets, numbers)
        target = self.target.rows(buckets, frozenset(numbers), int(self._timing.clock()))
        source: dict[RowKey, ComparedRow] = {}
        for findings in self._findings_of(splits, None):
            source |= findings.rows
        return differences(self.table, source, target)

    def splits_of(self, buckets: Buckets, numbers: Collection[int]) -> list[Split]:
        """The ranges of some buckets, with their replicas."""
        ranges = union(buckets.ranges[number] for number in numbers)
        return [self._survey.split_of(token_range) for token_range in ranges]

    def _second(self, rows: int, buckets: Buckets, first: dict[RowKey, Difference]) -> Compared:
        began = int((self._timing.clock() - self._grace) * _MICROS)
        second = self.look(buckets, bucket_numbers(buckets, first))
        # What differed otherwise before is still changing.
        lasting = {key: item for key, item in second.items() if key in first and item.newest < began}
        return Compared(self.table, rows, buckets, lasting, len(second) - len(lasting))

    def _differing(self, splits: Sequence[Split], buckets: Buckets) -> tuple[int, dict[int, int]]:
        """The source's rows in all buckets, and the rows of those that differ, of the side that has more."""
        source = self._digests(splits, buckets)
        target = self.target.digests(buckets, int(self._timing.clock()))
        digests = {bucket: (source.get(bucket), target.get(bucket)) for bucket in source.keys() | target.keys()}
        differing = {
            bucket: max(count for count, _ in filter(None, sides))
            for bucket, sides in digests.items()
            if sides[0] != sides[1]
        }
        return sum([count for count, _ in source.values()]), differing

    def _finer(self, buckets: Buckets, differing: Mapping[int, int]) -> Buckets:
        """The differing buckets, cut into smaller ones."""
        finer = buckets_of(
            [buckets.ranges[bucket] for bucket in differing], max(1, self._granularity.buckets // len(differing))
        )
        if len(finer.ranges) == len(differing):
            raise ServiceError(
                f"{self.table}: {sum(differing.values())} rows are in ranges that differ, and rows of at most "
                f"{self._granularity.rows} are looked at. Read the table again by a snapshot, or compare a part of it "
                "(--range)"
            )
        return finer

    def _digests(self, splits: Sequence[Split], buckets: Buckets) -> dict[int, Digest]:
        digests: dict[int, Digest] = {}
        for findings in self._findings_of(splits, buckets):
            for bucket, (count, total) in findings.digests.items():
                digests[bucket] = with_rows(digests.get(bucket, NO_ROWS), count, total)
        return digests

    def _findings_of(self, splits: Sequence[Split], buckets: Buckets | None) -> Iterable[TaskFindings]:
        tasks = deal(splits, self.source.settings.limits)
        for findings in self._run(tasks, ReadTask(self.source, len(tasks), buckets)):
            if findings.error is not None:
                raise ServiceError(f"{self.table} cannot be read: {findings.error}")
            yield findings


def bucket_numbers(buckets: Buckets, keys: Iterable[RowKey]) -> set[int]:
    """The buckets of some rows."""
    numbers = {buckets.of(token(key)) for key, _ in keys}
    return {bucket for bucket in numbers if bucket is not None}


def repair(comparison: Comparison, compared: Compared, *, remove: bool, now: int) -> dict[RowKey, Difference]:
    """Write what differs into the sink; what differs still, by a look behind it. `now` is in seconds since the epoch.

    The source's rows go through the sink's merge by their write times. With `remove`, rows and values that only the
    sink has go, by deletions of their own write times. Nothing that was written later goes with them. Raises
    ServiceError.
    """
    numbers = bucket_numbers(compared.buckets, compared.differences)
    stored = comparison.target.stored(compared.differences.keys()) if remove else {}
    rows = _source(comparison, compared, numbers)
    while batch := list(islice(rows, _AT_ONCE)):
        _write(comparison, compared, batch, stored, now)
    extra = [key for key, item in compared.differences.items() if item.kind is Kind.EXTRA and key in stored]
    comparison.target.sink.amend(compared.table, {key: _removal(None, stored[key], now) for key in extra}, {})
    differing = comparison.look(compared.buckets, numbers)
    return {key: item for key, item in differing.items() if key in compared.differences}


def _source(comparison: Comparison, compared: Compared, numbers: set[int]) -> Iterator[SourceRow]:
    splits = comparison.splits_of(compared.buckets, numbers)
    for row in source_rows(comparison.source, splits, 1):
        if row.row_key in compared.differences:
            yield row


def _write(
    comparison: Comparison,
    compared: Compared,
    batch: Sequence[SourceRow],
    stored: Mapping[RowKey, StoredVisible],
    now: int,
) -> None:
    sink = comparison.target.sink
    write_here(sink, [repair_of(compared.table, (row.change for row in batch))])
    removals = {row.row_key: _removal(row.state, stored[row.row_key], now) for row in batch if row.row_key in stored}
    clusterings: dict[RowKey, Clustering] = {row.row_key: row.change.clustering or () for row in batch}
    sink.amend(compared.table, removals, clusterings)


def _removal(source: RowState | None, stored: StoredVisible, now: int) -> RowState:
    """What goes of a stored row; of one that only readers see, all."""
    return RowState() if stored.state is None else removal(source, stored.state, now)
