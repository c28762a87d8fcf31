"""What a [sink.NAME] may be: one section for each kind of sink, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field, SecretStr, Tag, field_validator

from tailrace_common.secrets import redact
from tailrace_common.settings_cassandra import CassandraSettings
from tailrace_common.settings_section import Positive, Section

DAY_SECONDS: Final = 86_400
_LONGEST_TTL: Final = 630_720_000  # Attributes.MAX_TTL, 20 years


class SqlSinkSettings(Section):
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

    @field_validator("table")
    @classmethod
    def _check_table(cls, value: str) -> str:
        try:
            value.format(keyspace="k", table="t")
        except (KeyError, IndexError, ValueError):
            raise ValueError("may contain {keyspace} and {table}, and no other braces") from None
        if "{table}" not in value:
            raise ValueError("must contain {table}")
        return value

    @property
    def location(self) -> str:
        """The URL without its password, for people."""
        return redact(self.url.get_secret_value())


class LogTablesSinkSettings(CassandraSettings):
    """Tables like ScyllaDB's CDC log in a Cassandra or ScyllaDB cluster: each change a row, docs/log-tables.md."""

    type: Literal["log-tables"] = Field(default="log-tables", description="What kind of sink this is")
    keyspace: str = Field(
        default="{keyspace}",
        description="Keyspace of a source table's log table, which must exist. Unset: one of the source's name",
    )
    ttl_seconds: Annotated[int, Field(ge=0, le=_LONGEST_TTL)] = Field(
        default=DAY_SECONDS, description="Log rows vanish so long after they were written; 0: never"
    )
    consistency: Literal["ONE", "QUORUM", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM", "ALL"] = Field(
        default="LOCAL_QUORUM", description="Consistency level of the writes"
    )
    datacenter: str | None = Field(
        default=None,
        examples=["dc1"],
        description="Datacenter whose nodes are written to. Unset: that of the first contact point",
    )
    concurrency: Positive = Field(default=32, description="Most writes under way at once")

    @field_validator("keyspace")
    @classmethod
    def _check_keyspace(cls, value: str) -> str:
        try:
            value.format(keyspace="k")
        except (KeyError, IndexError, ValueError):
            raise ValueError("may contain {keyspace}, and no other braces") from None
        return value

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        return f"{self.contact_points[0]}:{self.port}"


SinkSettings = SqlSinkSettings | LogTablesSinkSettings
SINK_TYPES: Final[Mapping[str, type[SinkSettings]]] = {"sql": SqlSinkSettings, "log-tables": LogTablesSinkSettings}


def _type_of(value: Any) -> str:
    """A section without `type` is of the first kind."""
    named = value.get("type", "sql") if isinstance(value, Mapping) else getattr(value, "type", "sql")
    return named if isinstance(named, str) else "sql"


AnySinkSettings = Annotated[
    Annotated[SqlSinkSettings, Tag("sql")] | Annotated[LogTablesSinkSettings, Tag("log-tables")],
    Discriminator(_type_of, custom_error_type="sink_type", custom_error_message='type must be "sql" or "log-tables"'),
]
