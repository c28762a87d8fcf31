"""The section of a [sink.NAME] of type "sql"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from tailrace_common.secrets import redact, shown_database
from tailrace_common.sections.section import DAY_SECONDS, MergeHorizon
from tailrace_common.sections.sink import Dataset, SinkSettings, SourceTable
from tailrace_common.sections.template import require_template
from tailrace_spark.sinks.sql.names import wished_name

# OpenLineage's schemes, and the ports that drivers take where none is given.
_DATABASES: Final[Mapping[str, tuple[str, int]]] = {
    "postgresql": ("postgres", 5432), "mysql": ("mysql", 3306), "mariadb": ("mysql", 3306)
}  # fmt: skip


class SqlSinkSettings(SinkSettings):
    """Tables of a SQL database that follow the source."""

    by_subscription: ClassVar[frozenset[str]] = frozenset({"table"})
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
        description="What becomes of the rows of a source table that was dropped and created again: they stay under "
        "another name, or are deleted, or stay while the new table gets another name",
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

    def dataset(self, table: SourceTable) -> Dataset | None:
        """The table in the database; in PostgreSQL's schema `public`. A file of SQLite is a namespace."""
        parts = urlsplit(self.location)
        backend = parts.scheme.partition("+")[0]
        name = wished_name(self.table, table.keyspace, table.name, "mysql" if backend == "mariadb" else backend)
        if backend not in _DATABASES:
            return Dataset(f"{backend}://{Path(parts.path.removeprefix('/')).absolute()}", name)
        scheme, port = _DATABASES[backend]
        try:
            namespace = f"{scheme}://{parts.hostname or 'localhost'}:{parts.port or port}"
        except ValueError:  # several hosts, or none that can be told from a password
            return None
        database = parts.path.strip("/")
        return Dataset(namespace, f"{database}.public.{name}" if scheme == "postgres" else f"{database}.{name}")
