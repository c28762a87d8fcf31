"""Rows that differ, into the sink: as `read` changes through its merge, and removals where they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from tailrace_spark.comparison.rows import Difference, Kind, removal, repair_of
from tailrace_spark.comparison.run import Compared, Comparison, bucket_numbers
from tailrace_spark.comparison.source import SourceRow, source_rows
from tailrace_spark.merge.stored_row import RowKey
from tailrace_spark.rowstate.partition import Clustering
from tailrace_spark.rowstate.row import RowState
from tailrace_spark.sinks.protocol import StoredVisible
from tailrace_spark.sinks.writing import write_here

_AT_ONCE: Final = 1_000


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
    pieces = comparison.pieces_of(compared.buckets, numbers)
    for row in source_rows(comparison.source, pieces, 1):
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
