"""What a merge puts into the table of a lake that users read, and what it takes away."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from tailrace_spark.merge.partition import MergeResult, StoredPartition
from tailrace_spark.merge.stored_row import RowKey, decode_stored
from tailrace_spark.sinks.lake.fast_rows import FastRows, StoredRows
from tailrace_spark.sinks.lake.visible_rows import LakeRowRenderer


@dataclass(frozen=True, slots=True)
class VisibleChanges:
    """What a merge puts into the table that users read, record batches, and takes away; `new`: nothing of it is there.

    That is said of the state's rows too.
    """

    rows: Sequence[Any]
    hidden: Collection[RowKey]
    new: bool


def visible_changes(
    renderer: LakeRowRenderer, fast: FastRows, result: MergeResult[list[object]], stored: Sequence[StoredRows], now: int
) -> VisibleChanges:
    """Raises DecodeError as rendering does."""
    rows = renderer.plain_arrow(fast, now)
    if result.visible:
        rows.append(renderer.arrow(list(result.visible.values())))
    # What has no state is not shown: the same batch says both.
    hidden = {
        row_key
        for row_key in (*fast.hidden, *result.hidden)
        if any(row_key in stored_rows.at for stored_rows in stored)
    }
    stored_keys = [(row[0], row[1]) for row, _ in result.stored]
    new = not hidden
    for stored_rows in stored:
        put = chain(zip(fast.keys, fast.clusterings, strict=True), stored_keys, result.removed, result.visible)
        new = new and stored_rows.at.keys().isdisjoint(put)
    return VisibleChanges(rows, hidden, new)


def rows_of(
    renderer: LakeRowRenderer, partitions: Mapping[bytes, StoredPartition], now: int
) -> dict[RowKey, list[object]]:
    """What these partitions show."""
    rows: dict[RowKey, list[object]] = {}
    for key, partition in partitions.items():
        static = None if partition.static is None else partition.static.state
        states = [
            (clustering, (decode_stored(*row.stored).state, row.written_as))
            for clustering, row in partition.rows.items()
        ]
        rows.update(renderer.partition(key, static, states, now))
    return rows
