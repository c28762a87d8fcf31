"""Each test of the meta database runs on a SQLite file and on a real PostgreSQL, and in the long run on MariaDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tests.databases import SERVERS, new_database
from tests.unit.server.requests import CLUSTER

LEASE_SECONDS = 60.0


@pytest.fixture(params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """That of a new, empty database."""
    return new_database(request.param, tmp_path)


@pytest.fixture
def database(url: str) -> Iterator[MetaDatabase]:
    """A meta database with its tables."""
    with MetaDatabase(url) as made:
        made.prepare()
        yield made


@pytest.fixture
def worker(database: MetaDatabase) -> Callable[..., Leases]:
    """Makes workers of the cluster of the tests, by name."""

    def new(name: str, seconds: float = LEASE_SECONDS, cluster: str = CLUSTER) -> Leases:
        return Leases(database, cluster, name, seconds)

    return new
