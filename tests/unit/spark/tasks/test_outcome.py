"""Counts of a task's records, and whose keys they are."""

from __future__ import annotations

from uuid import UUID

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.topics import table_topic
from tailrace_spark.tasks.outcome import RecordCounts, all_owned, owners, tables_of

TOKENS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(TOKENS), st.integers(1, 100_000))
def test_an_owner_is_what_the_agent_chooses(tokens: list[int], partitions: int) -> None:
    expected = [((token + (1 << 63)) * partitions) >> 64 for token in tokens]
    assert owners(np.array(tokens, dtype=np.int64), partitions).tolist() == expected


def records(*tokens: tuple[int | None, str | None]) -> pa.Table:
    numbers, ops = zip(*tokens, strict=True)
    return pa.table({"token": pa.array(numbers, pa.int64()), "op": pa.array(ops, pa.string())})


def test_keys_of_a_partition_that_the_topic_had_before_it_grew_are_not_its_alone() -> None:
    low, high = -(1 << 62), 1 << 62
    assert all_owned(records((low, "insert"), (None, None)), 0, 2)
    assert not all_owned(records((low, "insert"), (high, "delete")), 0, 2)
    assert all_owned(records((high, "truncate"), (low, "insert")), 0, 2)
    assert all_owned(records((None, None)), 7, 8)


def test_changes_are_counted_by_table_or_by_the_topic_that_does_not_say_which_it_is() -> None:
    """A topic's name is cut where it is too long; a snapshot's is marked."""
    cut = table_topic("p", "k" * 48, "t" * 222, UUID(int=1))
    rows = [
        ("ks", "a", "p.ks.a", 5), ("ks", "a", "p.ks.a@s1", 7), ("ks", "b", "p.ks.b", 1), (None, None, cut, 3),
        (None, None, f"{cut}@s1", 2), (None, None, "p.other", None),
    ]  # fmt: skip
    columns = dict(zip(("keyspace", "table", "topic", "written"), zip(*rows, strict=True), strict=True))
    assert tables_of(pa.table(columns)) == {"ks.a": (2, 7), "ks.b": (1, 1), cut: (2, 3)}


def test_counts_add_up() -> None:
    first = RecordCounts(3, {"late": 1}, {"ks.a": (2, 10), "ks.b": (1, 5)})
    second = RecordCounts(2, {"late": 1, "ahead": 2}, {"ks.a": (2, 7)})
    assert first + second == RecordCounts(5, {"late": 2, "ahead": 2}, {"ks.a": (4, 10), "ks.b": (1, 5)})
    assert first + RecordCounts() == first
