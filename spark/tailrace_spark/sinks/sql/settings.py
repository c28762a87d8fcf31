"""The section of a [sink.NAME] of type "sql"."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator

from tailrace_common.secrets import redact, shown_database
from tailrace_common.sections.section import DAY_SECONDS, MergeHorizon
from tailrace_common.sections.sink import SinkSettings
from tailrace_common.sections.template import require_template


class SqlSinkSettings(SinkSettings):
    """Tables of a SQL database that follow the source."""

    type: Literal["sql"] = Field(default="sql", description="What kind of sink this is")
    url: SecretStr = Field(
        default=SecretStr("sqlite:///tailrace.db"),
        description='SQLAlchemy URL: "sqlite:///file.db", "postgresql://user:password@host/database" or "mysql://...", '
        "which is MariaDB's too",
    )
    url_file: Path | None = Field(
        default=None, examples=["/run/secrets/database-url"], description="File that holds the URL, instead of `url`"
    )
    table: str = Field(default="{keyspace}_{table}", description="Name of a source table in the database")
    on_drop: Literal["keep", "clear", "new-table"] = Field(
        default="keep",
        description="What becomes of a source table that was dropped and made again: its rows stay under another name, "
        "or go, or stay while the new one gets another name",
    )
    merge_horizon_seconds: MergeHorizon = 10 * DAY_SECONDS

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        return require_template(value, "keyspace", "table", needed="table")

    @property
    def location(self) -> str:
        """The URL for people: without user, password and what follows a question mark."""
        return shown_database(self.url.get_secret_value())

    @property
    def identity(self) -> str:
        """What tells one database from another; not to be shown."""
        return redact(self.url.get_secret_value())
