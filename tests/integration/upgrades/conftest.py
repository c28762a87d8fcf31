"""The last version's programs, built once; and a keyspace whose agent is the last version's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests import mariadb, postgres
from tests.integration.snapshot.following import Place, placed
from tests.upgrades.former import Former, build_former, missing


@pytest.fixture(scope="session")
def former_version(tmp_path_factory: pytest.TempPathFactory) -> Former:
    """The last version, installed."""
    if words := missing():
        pytest.skip(words)
    return build_former(tmp_path_factory.mktemp("former"))


@pytest.fixture(scope="session")
def former(former_version: Former) -> tuple[str, ...]:
    """What Python is told to run as the last version's `tailrace`."""
    return former_version.program


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


@pytest.fixture(params=["sqlite", "postgresql", "mysql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """Makes a new, empty database of a kind: a name, and its URL."""
    if request.param == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    new: dict[str, Callable[[str], str]] = {
        "sqlite": lambda name: f"sqlite:///{tmp_path / name}.db",
        "postgresql": lambda _: postgres.new_database(),
        "mysql": lambda _: mariadb.new_database(),
    }
    return new[request.param]
