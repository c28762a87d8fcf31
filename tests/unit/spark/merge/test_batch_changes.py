"""Truncations of a table against its hosts' logs, replayed: whatever order, batches, copies and write times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_spark.merge.batch_changes import truncate_batch
from tailrace_spark.rowstate.truncation import TruncationState
from tests.unit.spark.cassandra import truncate
from tests.unit.spark.changes import PLAIN
from tests.unit.spark.merge.replicas import DELAY, HOSTS, LOG, Cluster, Store, history, interleaved, shown, steps
from tests.unit.spark.sinks.contract import delivered


@pytest.mark.slow
@given(steps, st.lists(st.sampled_from(HOSTS), max_size=40), st.lists(st.integers(1, 9), max_size=20), st.booleans())
def test_a_store_ends_as_a_select_of_all_replicas(
    program: list[tuple[object, ...]], order: list[str], sizes: list[int], again: bool
) -> None:
    cluster, store = Cluster(), Store()
    history(cluster, program)
    records = [delivered(change) for change in interleaved(cluster.logs, order)]
    start = 0
    for size in (*sizes, len(records)):
        batch = records[start : start + size]
        store.take(batch)
        if again:  # it was delivered again
            store.take(batch)
        start += size
    assert shown(store.partition) == shown(cluster.select())
    store.take(records)  # from the topic's beginning
    assert shown(store.partition) == shown(cluster.select())


def test_a_batch_without_truncations_is_left_as_it_is() -> None:
    batch = [delivered(LOG.insert((1,), (1,), 1, v=1))]
    assert truncate_batch(TruncationState(), batch, DELAY).left is batch


def test_a_truncation_without_a_source_is_left_for_merging_to_refuse() -> None:
    nameless = delivered(replace(truncate(PLAIN, "a", 5), source=None))
    taken = truncate_batch(TruncationState(), [nameless], DELAY)
    assert (taken.erased, taken.left) == (None, [nameless])
