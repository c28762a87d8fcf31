"""Clustering keys as bytes that sort, unsigned, as Cassandra sorts a partition's rows; ranges of rows as intervals.

Components are those of `cql.order`. None starts with FF, so a prefix of a key with FF behind it is above every key
that starts with the prefix.
"""

from __future__ import annotations

from typing import Final

from tailrace_schemas.change import Bound
from tailrace_schemas.cql.order import sortable
from tailrace_schemas.table import Table

_ABOVE: Final = b"\xff"  # above every component


def clustering_key(table: Table, values: tuple[bytes | None, ...]) -> bytes:
    """The components of a clustering, or of a prefix of one, one behind the other, as `sortable` makes them.

    Raises ValueError for more values than the table has clustering columns.
    """
    if len(values) > len(table.clustering):
        raise ValueError(f"{table} has {len(table.clustering)} clustering columns, not {len(values)}")
    pairs = zip(table.clustering, values, strict=False)
    return b"".join([sortable(column.type, value, column.descending) for column, value in pairs])


def range_limits(table: Table, start: Bound, end: Bound) -> tuple[bytes, bytes]:
    """(low, high): the rows between two bounds are those with low <= clustering key < high.

    Bounds are in storage order, so `start` of a DESC column has the larger value (ClusteringPrefix.Kind). A bound on
    a prefix includes or excludes all rows that start with it; a bound without values is open.
    """
    low = clustering_key(table, start.values)
    high = clustering_key(table, end.values)
    if start.values and not start.inclusive:
        low += _ABOVE
    if end.inclusive or not end.values:
        high += _ABOVE
    return low, high
