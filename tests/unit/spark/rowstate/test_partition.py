"""Partitions: changes of every kind in any order end in one state, and tell which rows they touched."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import Change, Deletion, Op
from tailrace_schemas.clustering import clustering_key
from tailrace_spark.rowstate.deletions import NOTHING_DELETED, merge_partitions
from tailrace_spark.rowstate.partition import ClusteringBytes, Partition, PartitionRow, deletions_of
from tailrace_spark.rowstate.row import RowState, state_of
from tests.properties import examples
from tests.unit.spark.changes import PLAIN, deletions, partition_changes
from tests.unit.spark.rowstate import counters

histories = st.lists(partition_changes(), max_size=8)


def absorbed(changes: Iterable[Change]) -> Partition:
    partition = Partition()
    for change in changes:
        partition.absorb(change)
    return partition


def model(changes: list[Change]) -> Partition:
    """Deletions first, whatever came first; then each row by itself."""
    whole = NOTHING_DELETED
    for change in changes:
        if change.op in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            whole = merge_partitions(whole, deletions_of(change))
    rows: dict[ClusteringBytes, RowState] = {}
    for change in changes:
        if change.op not in (Op.DELETE_PARTITION, Op.DELETE_RANGE):
            place = None if change.static else clustering_key(change.table, change.clustering or ())
            rows.setdefault(place, RowState()).absorb(state_of(change))
    for place, state in rows.items():
        covering = whole.covering(place)
        if covering is not None:
            state.shadow(covering)
    clusterings = {clustering_key(c.table, c.clustering): c.clustering for c in changes if c.clustering is not None}
    known = {at: PartitionRow(clusterings[at] if at else (), state) for at, state in rows.items() if not state.empty}
    return Partition(whole, known)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(histories, st.randoms(use_true_random=False))
def test_any_order_gives_what_all_changes_together_say(changes: list[Change], random: Random) -> None:
    shuffled = changes + changes[: len(changes) // 2]
    random.shuffle(shuffled)
    assert absorbed(changes) == absorbed(shuffled) == model(changes)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(st.lists(counters.changes, max_size=6), st.lists(deletions, max_size=2), st.randoms(use_true_random=False))
def test_counters_and_deletions_of_partitions_in_any_order(
    changes: list[Change], whole: list[Deletion], random: Random
) -> None:
    said = changes + [
        Change(op=Op.DELETE_PARTITION, table=counters.COUNTERS, token=0, key=b"", deletion=deletion)
        for deletion in whole
    ]
    shuffled = said + said[: len(said) // 2]
    random.shuffle(shuffled)
    assert absorbed(said) == absorbed(shuffled) == model(said)


@pytest.mark.slow
@settings(max_examples=examples(20))
@given(histories, histories)
def test_exactly_what_a_change_touches_is_told(known: list[Change], changes: list[Change]) -> None:
    partition = absorbed(known)
    for change in changes:
        before = dict(partition.rows)
        touched = partition.absorb(change)
        after = partition.rows
        assert dict(touched) == {
            place: before.get(place) for place in {*before, *after} if before.get(place) != after.get(place)
        }
        assert partition.absorb(change) == []


@settings(max_examples=examples(20))
@given(histories, deletions)
def test_a_truncation_takes_what_it_covers(known: list[Change], truncated: Deletion) -> None:
    partition, whole = absorbed(known), absorbed(known)
    touched = partition.erase(truncated)
    assert {place for place, _ in touched} == {at for at in whole.rows if whole.rows[at] != partition.rows.get(at)}
    # As the deletion of the partition would, but for that deletion itself.
    change = Change(op=Op.DELETE_PARTITION, table=PLAIN, token=0, key=b"", deletion=truncated)
    whole.absorb(change)
    assert partition.rows == whole.rows
    assert merge_partitions(partition.deletions, deletions_of(change)) == whole.deletions
    assert partition.erase(truncated) == []


def test_what_deletes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="insert deletes no range"):
        deletions_of(Change(op=Op.INSERT, table=PLAIN, token=0, key=b"", deletion=Deletion(1, 1)))
    with pytest.raises(ValueError, match="truncate"):
        Partition().absorb(Change(op=Op.TRUNCATE, table=PLAIN, token=0, key=None))
