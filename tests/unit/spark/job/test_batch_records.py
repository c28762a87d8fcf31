"""Batches cut into parts by bytes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import tailrace_spark.job.batch_records
from tailrace_common.settings import Settings
from tailrace_spark.job.batch_records import part_bytes, parts_of


def records(*sizes: int) -> pa.Table:
    """Records of these sizes, of two partitions, not in the order of their places."""
    places = [("b", 0, 1), ("a", 1, 4), ("a", 0, 9), ("a", 0, 3), ("a", 1, 2)][: len(sizes)]
    columns = [list(column) for column in zip(*places, strict=True)] or [[], [], []]
    names = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64()}
    arrays = {name: pa.array(column, kind) for (name, kind), column in zip(names.items(), columns, strict=True)}
    return pa.table({**arrays, "size": pa.array(sizes, pa.int32())})


def places(part: pa.Table) -> list[tuple[str, int, int]]:
    return [(row["topic"], row["partition"], row["offset"]) for row in part.to_pylist()]


def test_what_fits_is_left_as_it_is() -> None:
    whole = records(5, 4, 3, 2, 1)
    assert parts_of(whole, 15) == [whole]
    assert [part.num_rows for part in parts_of(records(), 15)] == [0]


def test_parts_are_full_and_in_the_order_of_places() -> None:
    parts = parts_of(records(5, 4, 3, 2, 1), 6)  # by place: 2, 3, 1, 4, 5
    assert [places(part) for part in parts] == [
        [("a", 0, 3), ("a", 0, 9), ("a", 1, 2)], [("a", 1, 4)], [("b", 0, 1)],
    ]  # fmt: skip
    assert [sum(part.column("size").to_pylist()) for part in parts] == [6, 4, 5]


@pytest.mark.parametrize("most", range(1, 16))
def test_no_part_is_larger_but_one_of_a_single_record(most: int) -> None:
    parts = parts_of(records(5, 4, 3, 2, 1), most)
    assert sorted(place for part in parts for place in places(part)) == sorted(places(records(5, 4, 3, 2, 1)))
    assert all(part.num_rows == 1 or sum(part.column("size").to_pylist()) <= most for part in parts)


@pytest.mark.parametrize(("memory", "most"), [(1 << 20, 1 << 20), (1 << 30, 1 << 27), (64 << 30, 1 << 29)])
def test_a_part_is_an_eighth_of_the_memory_and_no_more_than_spark_collects(
    monkeypatch: pytest.MonkeyPatch, memory: int, most: int
) -> None:
    """A batch of one gibibyte ended each stream whose driver had much memory."""
    runtime = SimpleNamespace(getRuntime=lambda: SimpleNamespace(maxMemory=lambda: memory))
    java = SimpleNamespace(lang=SimpleNamespace(Runtime=runtime))
    monkeypatch.setattr(tailrace_spark.job.batch_records, "jvm_of", lambda _: SimpleNamespace(java=java))
    spark: Any = None
    assert part_bytes(spark, Settings()) == most
