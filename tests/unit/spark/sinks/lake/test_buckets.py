"""Buckets of current tables: by token, as Kafka partitions are."""

from __future__ import annotations

import pytest

from tailrace_schemas.tokens import partition, token
from tailrace_spark.sinks.lake.fast_rows import bucket_of

KEYS = [b"", *(number.to_bytes(4, "big") for number in range(2_000))]


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_a_bucket_has_rows_of_one_kafka_partition_where_partitions_divide_the_buckets(partitions: int) -> None:
    buckets = partitions * 4
    owners: dict[int, set[int]] = {}
    for key in KEYS:
        owners.setdefault(bucket_of(key, buckets), set()).add(partition(token(key), partitions))
    assert {bucket: {bucket // 4} for bucket in range(buckets)} == owners


def test_a_bucket_on_an_edge_has_rows_of_two_kafka_partitions() -> None:
    owners = {partition(token(key), 2) for key in KEYS if bucket_of(key, 3) == 1}
    assert owners == {0, 1}
