"""A node's keyspace whose agent runs, for streams that read snapshots. A module's tests have tables of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.snapshot.following import Place, placed
from tests.services.choice import Means

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def place(
    cassandra: LocalCassandra, kafka: LocalKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place"), spark) as new:
        yield new


@pytest.fixture(scope="module", params=["5.0", pytest.param("4.1", marks=pytest.mark.long)])
def node(
    request: pytest.FixtureRequest, means: Means, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCassandra]:
    """The run's node, and one of a version that says less of what it stores."""
    if request.param == "5.0":
        yield request.getfixturevalue("cassandra")
    elif means is Means.CONTAINERS:
        pytest.skip("other versions are run as child processes")
    else:
        settings = CassandraSettings(release=request.param)
        with LocalCassandra(tmp_path_factory.mktemp("node") / "node", settings) as other:
            yield other
