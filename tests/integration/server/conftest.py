"""A node's keyspace whose agent runs, for subscriptions that take the snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.snapshot.following import Place, placed


@pytest.fixture(scope="module")
def place(cassandra: LocalCassandra, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place")) as new:
        yield new
