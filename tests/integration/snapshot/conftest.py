"""A node's keyspace whose agent runs, for streams that read snapshots. A module's tests have tables of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.snapshot.following import Place, placed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def place(
    cassandra: LocalCassandra, kafka: LocalKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place"), spark) as new:
        yield new
