"""A task's batches cut into runs of one Kafka partition."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tailrace_spark.tasks.runs import partition_runs

Records = list[tuple[str, int, int]]


def batch(records: Records) -> pa.RecordBatch:
    topics, partitions, offsets = zip(*records, strict=True) if records else ((), (), ())
    columns = [pa.array(topics, pa.string()), pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())]
    return pa.RecordBatch.from_arrays(columns, names=["topic", "partition", "offset"])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 4)), unique=True), st.integers(1, 9))
def test_runs_are_the_records_in_their_order(lengths: Records, size: int) -> None:
    records = [(topic, number, offset) for topic, number, length in lengths for offset in range(length)]
    batches = [batch(records[start : start + size]) for start in range(0, len(records), size)]
    runs = [
        (partition, [offset for run in batches_of for offset in run.column("offset").to_pylist()])
        for partition, batches_of in partition_runs([*batches, batch([])])
    ]
    assert [(*partition, offset) for partition, offsets in runs for offset in offsets] == records
    assert all(first[0] != second[0] for first, second in pairwise(runs))


def test_what_is_left_of_a_partition_is_passed_over() -> None:
    runs = partition_runs([batch([("a", 0, 0), ("a", 0, 1), ("b", 0, 0)]), batch([("b", 0, 1), ("b", 1, 0)])])
    assert [partition for partition, _ in runs] == [("a", 0), ("b", 0), ("b", 1)]
