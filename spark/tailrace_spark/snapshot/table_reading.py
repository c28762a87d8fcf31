"""What a task needs to read a table's ranges: the columns, the statement, and a reader at the limits asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace_schemas.table import Table
from tailrace_spark.snapshot.pace import Patience, RowRate
from tailrace_spark.snapshot.page_size import PageSize
from tailrace_spark.snapshot.reading import Clock, RangeReader
from tailrace_spark.snapshot.rows import RowShape
from tailrace_spark.snapshot.selection import columns_of, selection, statement
from tailrace_spark.snapshot.session import page_source
from tailrace_spark.snapshot.settings import SnapshotSettings


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


@contextmanager
def range_reader(settings: SnapshotSettings, query: str, tasks: int, *, stays: bool = False) -> Iterator[RangeReader]:
    """A reader of one of so many tasks, over this process's connection: it has its share of the rows a second.

    `stays`: of a range it asks the first replica alone.

    Raises ServiceError.
    """
    clock = Clock(time.monotonic, time.sleep)
    rate = settings.rows_per_second and settings.rows_per_second / tasks
    most_rows = settings.page_rows if rate is None else min(settings.page_rows, max(1, int(rate)))
    size, patience = PageSize(most_rows, settings.page_octets), Patience(settings.attempts, settings.retry_seconds)
    with page_source(settings) as source:
        yield RangeReader(source, query, size, RowRate(rate, clock.now()), patience, clock, stays=stays)
