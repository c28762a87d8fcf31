"""New, empty databases of each kind that the SQL sink and the meta database write, for tests of both."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests import mariadb, postgres

SERVERS: Final = (
    pytest.param("postgresql", marks=pytest.mark.slow),
    pytest.param("mysql", marks=pytest.mark.long),
)
"""Those that several processes may write at once, as parameters of tests; MariaDB takes longer."""


def new_database(kind: str, folder: Path) -> str:
    """The URL of one: "sqlite", a file in the folder, or of a kind of SERVERS. Without MariaDB its test is skipped."""
    if kind == "sqlite":
        return f"sqlite:///{folder / 'new.db'}"
    if kind == "mysql" and (trouble := mariadb.missing()):
        pytest.skip(trouble)
    return postgres.new_database() if kind == "postgresql" else mariadb.new_database()
