"""A meta database that is a SQLite file, and its subscriptions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MetaDatabase]:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        yield database


@pytest.fixture
def subscriptions(database: MetaDatabase) -> Subscriptions:
    return Subscriptions(database)
