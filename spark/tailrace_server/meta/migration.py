"""Versions of the meta database's tables, by Alembic."""

from __future__ import annotations

from enum import Enum
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tailrace_schemas.errors import SettingsError


class Tables(Enum):
    """How the tables of a database stand to what this version reads and writes."""

    CURRENT = "current"
    OLDER = "older"


def current(connection: sa.Connection, location: str) -> Tables:
    """Whether the tables have to be made or altered. Raises SettingsError for those of a version that nobody knows."""
    revision = revision_of(connection)
    scripts = ScriptDirectory.from_config(_config(connection))
    if revision == scripts.get_current_head():
        return Tables.CURRENT
    if revision is not None and revision not in {script.revision for script in scripts.walk_revisions()}:
        raise SettingsError(
            f"server.url {location}: its tables are of another version of Tailrace (revision {revision}). "
            "Install that version, or give the servers another database"
        )
    return Tables.OLDER


def revision_of(connection: sa.Connection) -> str | None:
    """The revision of the tables; None where there are none."""
    return MigrationContext.configure(connection).get_current_revision()


def upgrade(connection: sa.Connection) -> None:
    """Make the tables, or alter them."""
    command.upgrade(_config(connection), "head")


def _config(connection: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
