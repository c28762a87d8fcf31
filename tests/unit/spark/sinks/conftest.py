"""Each test of the contract runs on a SQLite file and on a real PostgreSQL, in a new database; MariaDB takes longer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests import mariadb, postgres
from tests.unit.spark.sinks.contract import Database


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.integration),
        pytest.param("mysql", marks=pytest.mark.long),
    ]
)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A new, empty database and a way to look into it."""
    if request.param == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    url = {
        "sqlite": lambda: f"sqlite:///{tmp_path / 'sink.db'}",
        "postgresql": postgres.new_database,
        "mysql": mariadb.new_database,
    }[request.param]()
    engine = sa.create_engine(url)
    yield Database(url, engine)
    engine.dispose()
