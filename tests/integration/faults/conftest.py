"""A trial on the run's own Cassandra and Kafka, and a stream on the run's own Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.faults.followed import ROWS, Followed
from tests.integration.faults.trial import Trial, trial_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def trial(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Iterator[Trial]:
    """A keyspace, and the prefix's agents to begin at this instant."""
    with trial_on(cassandra, kafka, prefix, keyspace_name, tmp_path) as trial:
        yield trial


@pytest.fixture
def followed(spark: SparkSession, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Followed]:
    """A table with ten rows, all of which the sink has."""
    followed = Followed(spark, kafka, prefix, tmp_path)
    followed.insert(ROWS, *range(10))
    followed.drain()
    assert followed.ids(ROWS) == set(range(10))
    yield followed
    followed.feed.close()
