"""The last version's programs, built once; and a keyspace whose agent is the last version's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.snapshot.following import Place, placed
from tests.upgrades.former import build_former, missing


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """What Python is told to run as the last version's `tailrace`."""
    if words := missing():
        pytest.skip(words)
    return build_former(tmp_path_factory.mktemp("former"))


@pytest.fixture(scope="module")
def place(
    cassandra: LocalCassandra,
    kafka: LocalKafka,
    former: tuple[str, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    """In the order of the guide streams and servers are upgraded first: the agent is the last version's."""
    with placed(cassandra, kafka, tmp_path_factory.mktemp("place"), program=former) as new:
        yield new
