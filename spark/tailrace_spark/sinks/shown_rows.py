"""The filters of rows as sinks ask them: a table that they do not fit is refused, and holds up no other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_spark.merge.row_filter import RowFilters, predicate_of
from tailrace_spark.merge.shown_rows import ShownRows, shown_rows
from tailrace_spark.sinks.table_faults import TableRefusedError


def shown_in_sink(filters: RowFilters, table: Table) -> ShownRows | None:
    """Which rows of a table are shown; None: all. Raises TableRefusedError where a filter does not fit the table."""
    with _refusing():
        return shown_rows(filters, table)


def rows_matching(filters: RowFilters, table: Table) -> Callable[[Mapping[str, object]], bool] | None:
    """Whether a row matches, by its values that are not null; None: all do.

    Raises TableRefusedError where a filter does not fit the table.
    """
    with _refusing():
        predicate = predicate_of(filters, table)
    if predicate is None:
        return None
    names = [column.name for column in predicate.columns]
    return lambda values: predicate.holds([values.get(name) for name in names])


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        raise TableRefusedError(str(error)) from None
