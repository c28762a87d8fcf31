"""Buckets of current tables: by token, as Kafka partitions are; by the former hash in tables of before that."""

from __future__ import annotations

import json
from zlib import crc32

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_schemas.tokens import partition, token
from tailrace_spark.sinks.lake.fast_rows import Buckets, bucket_of
from tailrace_spark.sinks.lake.state import TableEntry, buckets_of, entry_rows
from tests.support.shop import PLAIN

KEYS = [b"", *(number.to_bytes(4, "big") for number in range(2_000))]


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_a_bucket_has_rows_of_one_kafka_partition_where_partitions_divide_the_buckets(partitions: int) -> None:
    buckets = Buckets(partitions * 4)
    owners: dict[int, set[int]] = {}
    for key in KEYS:
        owners.setdefault(bucket_of(key, buckets), set()).add(partition(token(key), partitions))
    assert {bucket: {bucket // 4} for bucket in range(buckets.number)} == owners


def test_a_bucket_on_an_edge_has_rows_of_two_kafka_partitions() -> None:
    owners = {partition(token(key), 2) for key in KEYS if bucket_of(key, Buckets(3)) == 1}
    assert owners == {0, 1}


def test_tables_of_before_keep_their_hash() -> None:
    assert [bucket_of(key, Buckets(5, by_token=False)) for key in KEYS] == [crc32(key) % 5 for key in KEYS]


@pytest.mark.parametrize("by_token", [True, False])
def test_an_entry_notes_its_buckets(by_token: bool) -> None:
    buckets = Buckets(6, by_token=by_token)
    own = json.loads(entry_rows(TableEntry(PLAIN, 1, buckets=buckets, names={}))[0]["state"])["own"]
    assert ("bucket_by" in own) is by_token
    assert buckets_of(own) == buckets


def test_buckets_of_a_later_version_are_refused() -> None:
    with pytest.raises(SettingsError, match="by 'range'"):
        buckets_of({"buckets": 6, "bucket_by": "range"})
