"""Partitions merged at once, and what stands above their rows before the rows: both ways make the same of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tailrace_schemas.change import Change
from tailrace_spark.batch.delivery import Delivered, RecordId
from tailrace_spark.merge.batch_changes import BatchChanges, gather
from tailrace_spark.merge.partition import MergeResult, PartitionMerge, StoredPartition, StoredRow
from tailrace_spark.merge.stored_row import ROW, STATIC, StateTableRow, head_of
from tailrace_spark.sinks.opensearch.documents import Document, Documents
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

NOW = 1_000
PLAIN = table({"k": "int"}, {"c": "int"}, None, {"v": "text"})
WITH_STATIC = table({"k": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"})
Result = MergeResult[Document]


def gathered(changes: Sequence[Change]) -> BatchChanges:
    return gather(Delivered(RecordId("t", 0, at), change, None) for at, change in enumerate(changes))


def stored_by(result: Result) -> dict[bytes, StoredPartition]:
    """What a store has where it had nothing before."""
    by_key: dict[bytes, list[tuple[StateTableRow, Sequence[bytes | None] | None]]] = {}
    for row, written_as in result.stored:
        by_key.setdefault(row[0], []).append((row, written_as))
    partitions = {}
    for key, stored in by_key.items():
        head = head_of((row[1], row[3], row[4], row[5]) for row, _ in stored if row[1] < ROW)
        rows = {
            row[1]: StoredRow((row[3], row[4], row[5]), tuple(clustering or ()), row[6])
            for row, clustering in stored
            if row[1] >= ROW
        }
        static_expiry = next((row[6] for row, _ in stored if row[1] == STATIC), None)
        partitions[key] = StoredPartition(head.deletions, head.static, static_expiry, rows)
    return partitions


def written(log: Log) -> list[Change]:
    return [
        *(log.insert((k,), (c,), 5, v=f"{k}.{c}") for k in range(3) for c in range(4)),
        log.delete_range((1,), (0,), (1,), 4),
    ]


FURTHER = {
    "rows": lambda log: [
        log.update((0,), (0,), 6, v="new"),
        log.insert((4,), (0,), 6, v="new"),
        log.insert((0,), (1,), 5),
    ],
    "range": lambda log: [log.delete_range((0,), (1,), (2,), 7), log.insert((0,), (1,), 6, v="covered")],
    "partition": lambda log: [log.delete_partition((1,), 5), log.insert((1,), (9,), 8, v="later")],
    "row": lambda log: [log.delete((2,), (2,), 9)],
}


@pytest.mark.parametrize("of", [PLAIN, WITH_STATIC], ids=["plain", "static"])
@pytest.mark.parametrize("further", FURTHER)
def test_heads_before_rows_make_what_one_merge_makes(further: str, of: object) -> None:
    log = Log(WITH_STATIC if of is WITH_STATIC else PLAIN)
    statics = [log.static((k,), 5, s=f"static {k}") for k in range(2)] if of is WITH_STATIC else []
    merge = PartitionMerge[Document](Documents(log.table), NOW)
    first = merge.merge({}, gathered([*written(log), *statics]))
    changes = FURTHER[further](log) + ([log.static((1,), 6, s="new")] if statics else [])

    at_once = merge.merge(stored_by(first), gathered(changes))
    # A state is taken by whoever merges it, so each way has states of its own.
    stored = stored_by(first)
    batch = gathered(changes)
    heads, above = merge.merge_heads({key: replaced(partition) for key, partition in stored.items()}, batch)
    below = merge.merge_rows(heads, {key: partition.rows for key, partition in stored.items()}, batch.rows, ())

    assert sorted(map(repr, [*above.stored, *below.stored])) == sorted(map(repr, at_once.stored))
    assert sorted([*above.removed, *below.removed]) == sorted(at_once.removed)
    assert (below.visible, below.hidden) == (at_once.visible, at_once.hidden)
    assert above.rows + below.rows == at_once.rows
    assert all(row[1] < ROW for row, _ in above.stored), "the heads' merge looks at no rows"


def replaced(partition: StoredPartition) -> StoredPartition:
    """The same without its rows."""
    return StoredPartition(partition.deletions, partition.static, partition.static_expiry, {})


def test_rows_of_a_whole_partition_are_looked_at_though_nothing_above_them_changed() -> None:
    """As where another writer left a partition pending: its rows are yet to be brought to its deletions."""
    log = Log(PLAIN)
    merge = PartitionMerge[Document](Documents(PLAIN), NOW)
    rows = stored_by(merge.merge({}, gathered([log.insert((1,), (c,), 5, v="a") for c in range(3)])))
    deletion = gathered([log.delete_range((1,), (1,), (1,), 9)])
    [key] = rows
    deleted = StoredPartition(deletion.deletions[key], None, None, {})
    heads, above = merge.merge_heads({key: deleted}, BatchChanges())
    assert (above.stored, above.removed) == ([], [])
    assert not merge.merge_rows(heads, {key: rows[key].rows}, {}, ()).hidden
    result = merge.merge_rows(heads, {key: rows[key].rows}, {}, {key})
    assert result.hidden == set(result.removed)
    assert len(result.removed) == 1
