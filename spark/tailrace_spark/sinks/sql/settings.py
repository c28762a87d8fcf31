"""The section of a [sink.NAME] of type "sql"."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import Field, SecretStr, field_validator

from tailrace_common.secrets import redact, shown_database
from tailrace_common.sections.section import DAY_SECONDS, MergeHorizon
from tailrace_common.sections.sink import Dataset, SinkSettings, SourceTable
from tailrace_common.sections.template import claim, fit, require_template

# OpenLineage's schemes, and the ports that drivers take where none is given.
_DATABASES: Final[Mapping[str, tuple[str, int]]] = {
    "postgresql": ("postgres", 5432), "mysql": ("mysql", 3306), "mariadb": ("mysql", 3306)
}  # fmt: skip
LONGEST: Final[Mapping[str, int]] = {"sqlite": 255, "postgresql": 63, "mysql": 64}
"""Bytes of UTF-8 that a name has in each dialect; MySQL's are characters. SQLite knows no limit."""

# Ours stand behind the name of a source table.
SUFFIXES: Final = ("__rows", "__static", "__state", "__by_key", "__by_expiry", "__by_purge", "__heads")
# PostgreSQL names the indexes of primary keys by itself.
_INDEXES: Final = ("__rows_pkey", "__static_pkey", "__state_pkey")


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


def objects(name: str) -> frozenset[str]:
    """The names, in lower case, of all that a source table called `name` may need: view, tables, indexes.

    Tables, views and indexes share their names in both databases.
    """
    return frozenset((name + suffix).lower() for suffix in ("", *SUFFIXES, *_INDEXES))


def table_name(name: str, limit: int, used: Collection[str]) -> str:
    """A name for a source table whose objects are all free; it leaves room for the suffixes of its tables."""
    return claim(name, _room(limit), used, objects)


def closed_name(name: str, table_id: UUID, limit: int) -> str:
    """The name that a table gets whose source was dropped, as far as it is free: its end says so, however long."""
    suffix = f"__dropped_{table_id.hex[:8]}"
    return fit(name, _room(limit) - len(suffix)) + suffix


def wished_name(template: str, keyspace: str, table: str, dialect: str) -> str:
    """The name that a source table gets where it is free."""
    name = template.format(keyspace=keyspace, table=table)
    if dialect == "sqlite" and name.lower().startswith("sqlite_"):
        name = "_" + name  # SQLite keeps these to itself
    return table_name(name, LONGEST[dialect], ())


def _room(limit: int) -> int:
    return limit - max(map(len, SUFFIXES))
