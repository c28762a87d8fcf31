"""A current table held against its source: what it has of each row, and what is merged into stored rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tailrace_spark.merge.partition import MergeResult, StoredPartition, StoredRow
from tailrace_spark.merge.state_keys import STATIC
from tailrace_spark.merge.stored_row import RowKey, decode_stored, state_row
from tailrace_spark.rowstate.row import RowState, merge
from tailrace_spark.sinks.lake.current_table import CurrentTable
from tailrace_spark.sinks.lake.row_changes import VisibleChanges, rows_of
from tailrace_spark.sinks.lake.store import Number
from tailrace_spark.sinks.lake.visible_rows import BUCKET, LakeRowRenderer
from tailrace_spark.sinks.naming import CLUSTERING, KEY
from tailrace_spark.sinks.protocol import StoredVisible


def rows_stored(followed: CurrentTable) -> Iterator[StoredVisible]:
    """As ComparableSink says, a bucket after the other. Raises ServiceError.

    A static row is visible where any row of its partition is: they all show its values.
    """
    entry = followed.entry
    renderer = LakeRowRenderer(entry.definition, entry.buckets, entry.names)
    partition_columns, key_columns = len(entry.definition.partition_key), len(entry.definition.key)
    clustering_names = renderer.schema.names[partition_columns:key_columns]
    for bucket in range(entry.buckets.number):
        visible = _visible(followed, bucket, clustering_names)
        partitions_shown = {key for key, _ in visible}
        for key, partition in followed.state.bucket(bucket).items():
            if partition.static is not None:
                visible.pop((key, STATIC), None)
                yield StoredVisible((key, STATIC), partition.static.state, key in partitions_shown, ())
            for clustering, row in partition.rows.items():
                row_key = key, clustering
                values = visible.pop(row_key, None)
                yield StoredVisible(row_key, decode_stored(*row.stored).state, values is not None, values or ())
        for row_key, values in visible.items():  # somebody else has put them there
            yield StoredVisible(row_key, None, True, values)


def _visible(followed: CurrentTable, bucket: int, clustering_names: list[str]) -> dict[RowKey, tuple[object, ...]]:
    """The clustering columns of all rows that readers see in a bucket."""
    shown = followed.store.open(followed.name)
    if shown is None:
        return {}
    rows = shown.read([KEY, CLUSTERING, *clustering_names], Number(BUCKET).equals(bucket))
    columns = [rows[name].to_pylist() for name in clustering_names]
    values = list(zip(*columns, strict=True)) if columns else [()] * len(rows)
    return {
        (key, clustering): row_values
        for key, clustering, row_values in zip(rows[KEY].to_pylist(), rows[CLUSTERING].to_pylist(), values, strict=True)
    }


def amend(followed: CurrentTable, states: Mapping[RowKey, RowState], shown: Mapping[RowKey, Any], now: int) -> None:
    """As ComparableSink says: two commits, the state first. Raises ServiceError."""
    entry = followed.entry
    keys = {key for key, _ in (*states, *shown)}
    renderer = LakeRowRenderer(entry.definition, entry.buckets, entry.names)
    result = MergeResult[list[object]]()
    partitions = {
        key: _amended(key, partition, states, now, result)
        for key, partition in followed.state.partitions(keys, entry.buckets).items()
    }
    rows = rows_of(renderer, partitions, now)
    stored_keys = {(key, clustering) for key, partition in partitions.items() for clustering in partition.rows}
    hidden = {*states, *shown, *stored_keys, *[(key, STATIC) for key in keys]} - rows.keys()
    batches = [renderer.arrow(list(rows.values()))] if rows else []
    followed.amend(renderer, result, VisibleChanges(batches, hidden, new=False))


def _amended(
    key: bytes,
    partition: StoredPartition,
    states: Mapping[RowKey, RowState],
    now: int,
    result: MergeResult[list[object]],
) -> StoredPartition:
    """A partition with the states merged into its stored rows; `result` gets those that are stored otherwise."""
    static, rows = partition.static, dict(partition.rows)
    if static is not None and (key, STATIC) in states:
        static_state = merge(static.state, states[key, STATIC])
        result.put((key, STATIC), static_state, now, None, None)
        encoded = state_row((key, STATIC), static_state, now, None)
        static = None if static_state.empty else decode_stored(encoded[3], encoded[4], encoded[5])
    for clustering, row in partition.rows.items():
        if (key, clustering) not in states:
            continue
        state = merge(decode_stored(*row.stored).state, states[key, clustering])
        result.put((key, clustering), state, now, row.written_as, None)
        if state.empty:
            del rows[clustering]
        else:
            stored = state_row((key, clustering), state, now, None)
            rows[clustering] = StoredRow((stored[3], stored[4], stored[5]), row.written_as, stored[6])
    return replace(partition, static=static, rows=rows)
