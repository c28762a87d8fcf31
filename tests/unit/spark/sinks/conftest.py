"""Each test of the contract runs on a SQLite file and on a real PostgreSQL, in a new database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.postgres import new_database
from tests.unit.spark.sinks.contract import Database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.integration)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A new, empty database and a way to look into it."""
    url = f"sqlite:///{tmp_path / 'sink.db'}" if request.param == "sqlite" else new_database()
    engine = sa.create_engine(url)
    yield Database(url, engine)
    engine.dispose()
