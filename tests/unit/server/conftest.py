"""A meta database that is a SQLite file, its subscriptions, and the two ways to them that commands have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_server.meta.credentials import Role
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.subscriptions import Subscriptions
from tests.unit.server.oidc.issuer import Issuer, issuing

SETTINGS = """
[sink.dwh]
type = "sql"
url = "postgresql://u:hunter2@host/d"

[sink.lake]
type = "delta"
path = "/none"
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MetaDatabase]:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        yield database


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as started:
        yield started


@pytest.fixture
def subscriptions(database: MetaDatabase) -> Subscriptions:
    return Subscriptions(database)


@pytest.fixture(params=["direct", "http"])
def door(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options by which a command asks the meta database itself or a server, from a directory with settings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tailrace.toml").write_text(SETTINGS)
    if request.param == "direct":
        return []
    api = request.getfixturevalue("served")
    (tmp_path / "key").write_text(api.keys[Role.OPERATE])
    return ["--server", api.url, "--api-key-file", "key"]
