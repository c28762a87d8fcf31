"""Each test of the contract runs on a SQLite file and on a real PostgreSQL, in a new database; MariaDB takes longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests import opensearch, rabbitmq
from tests.databases import SERVERS, new_database
from tests.unit.spark.sinks.contract import Database
from tests.unit.spark.sinks.opensearch.indexes import Searched
from tests.unit.spark.sinks.opensearch.proxy import SearchProxy
from tests.unit.spark.sinks.rabbitmq.published import Published


@pytest.fixture(params=["sqlite", *SERVERS])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A new, empty database and a way to look into it."""
    with closing(Database(new_database(request.param, tmp_path))) as database:
        yield database


@pytest.fixture(params=SERVERS)
def server_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """The same, of a server that several processes may write at once."""
    with closing(Database(new_database(request.param, tmp_path))) as database:
        yield database


@pytest.fixture
def published() -> Iterator[Callable[..., Published]]:
    """Makes exchanges, and takes them away."""
    made: list[Published] = []

    def new(server: rabbitmq.Rabbitmq | None = None, *, by_tasks: bool = False, **settings: object) -> Published:
        made.append(Published(server or rabbitmq.server(), by_tasks=by_tasks, **settings))
        return made[-1]

    yield new
    for one in made:
        one.close()


@pytest.fixture
def searched() -> Searched:
    """New indices of the run's OpenSearch, which starts when it is first asked for."""
    return Searched(opensearch.server().url)


@pytest.fixture
def proxy() -> Iterator[SearchProxy]:
    """What stands in between, and may let requests or answers go."""
    with closing(SearchProxy(opensearch.server().url)) as made:
        yield made
