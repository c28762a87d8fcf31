"""What a task needs to read a table's ranges: the columns, the statement, and a reader at the limits asked for."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from tailrace_schemas.table import Table
from tailrace_spark.snapshot.driver import page_source
from tailrace_spark.snapshot.estimate import SAMPLE_ROWS, Sample, sample_of
from tailrace_spark.snapshot.pace import RowRate
from tailrace_spark.snapshot.page_size import PageSize
from tailrace_spark.snapshot.ranges import Piece
from tailrace_spark.snapshot.reading import Clock, Hosts, PageReader, Patience, RangeReader, asking
from tailrace_spark.snapshot.rows import RowShape
from tailrace_spark.snapshot.selection import columns_of, selection, statement, token_statement
from tailrace_spark.snapshot.session import ClusterView
from tailrace_spark.snapshot.settings import SnapshotSettings

_CLOCK: Final = Clock(time.monotonic, time.sleep)


def shape_of(settings: SnapshotSettings, table: Table, release: tuple[int, int]) -> RowShape:
    """The columns that are read of a table, from nodes of a release. Raises SettingsError."""
    columns = columns_of(table, settings.columns)
    selected = selection(columns, release, times=settings.details)
    if settings.rows == "changes":  # its columns' names are its own
        return RowShape(selected, details=False)
    return RowShape(selected, settings.details, settings.detail_prefix)


def query_of(settings: SnapshotSettings, table: Table, shape: RowShape) -> str:
    """The statement that reads a range. Raises SettingsError."""
    return statement(table, shape.selected, settings.filter, allow_filtering=settings.allow_filtering)


def require_readable(view: ClusterView, settings: SnapshotSettings, table: Table) -> None:
    """Have the cluster look at what will be read of a table.

    Raises UnreadableError where it gives masked values, ServiceError where it refuses, SettingsError.
    """
    view.check(query_of(settings, table, shape_of(settings, table, view.release())))


def take_samples(settings: SnapshotSettings, table: Table, pieces: Iterable[Piece]) -> list[Sample]:
    """How many rows the begins of pieces have. Raises ServiceError."""
    query, patience = token_statement(table), Patience(settings.attempts, settings.retry_seconds)
    reader = PageReader(PageSize(SAMPLE_ROWS, settings.page_octets), patience, _CLOCK)
    samples: list[Sample] = []
    with page_source(settings) as source:
        for piece in pieces:
            page = reader.page(f"a sample of {table}", asking(source, query, piece.range), Hosts(piece.replicas))
            tokens = [int.from_bytes(token or b"", "big", signed=True) for token in page.columns[0]]
            samples.append(sample_of(piece.range, tokens, is_whole=page.next_page is None))
    return samples


@contextmanager
def range_reader(
    settings: SnapshotSettings, table: Table, shape: RowShape, tasks: int, *, stays: bool = False
) -> Iterator[RangeReader]:
    """A reader of one of so many tasks, over this process's connection: it has its share of the rows a second.

    `stays`: of a range it asks the first replica alone.

    Raises ServiceError, SettingsError.
    """
    query = query_of(settings, table, shape)
    rate = settings.rows_per_second and settings.rows_per_second / tasks
    most_rows = settings.page_rows if rate is None else min(settings.page_rows, max(1, int(rate)))
    size, patience = PageSize(most_rows, settings.page_octets), Patience(settings.attempts, settings.retry_seconds)
    with page_source(settings) as source:
        pace = RowRate(rate, _CLOCK.now())
        yield RangeReader(source, str(table), query, size, pace, patience, _CLOCK, stays=stays)
