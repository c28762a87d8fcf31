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
    shown: LakeRowRenderer, plain: FastRows, merged: MergeResult[list[object]], stored: Sequence[StoredRows], at: int
) -> VisibleChanges:
    """Raises DecodeError as rendering does."""
    rows = shown.plain_arrow(plain, at)
    if merged.visible:
        rows.append(shown.arrow(list(merged.visible.values())))
    # What has no state is not shown, as both are told by the same batch.
    hidden = {row_key for row_key in (*plain.hidden, *merged.hidden) if any(row_key in part.at for part in stored)}
    kept = [(row[0], row[1]) for row, _ in merged.stored]
    new = not hidden
    for part in stored:
        put = chain(zip(plain.keys, plain.clusterings, strict=True), kept, merged.removed, merged.visible)
        new = new and part.at.keys().isdisjoint(put)
    return VisibleChanges(rows, hidden, new)


def rows_of(shown: LakeRowRenderer, partitions: Mapping[bytes, StoredPartition], at: int) -> dict[RowKey, list[object]]:
    """What these partitions show."""
    rows: dict[RowKey, list[object]] = {}
    for key, known in partitions.items():
        static = None if known.static is None else known.static.state
        states = [(at_, (decode_stored(*row.stored).state, row.written_as)) for at_, row in known.rows.items()]
        rows.update(shown.partition(key, static, states, at))
    return rows
