"""The files of a meta database that is one: nobody else of the machine reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_schemas.errors import ServiceError
from tailrace_server.meta.database import MetaDatabase


def test_a_new_file_is_its_users_alone(tmp_path: Path) -> None:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        database.ping()
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


def test_one_that_cannot_be_made_is_said_in_our_words(tmp_path: Path) -> None:
    with (
        MetaDatabase(f"sqlite:///{tmp_path / 'missing' / 'meta.db'}") as database,
        pytest.raises(ServiceError, match="meta"),
    ):
        database.prepare()
