"""What a [sink.NAME] may be: one section for each kind of sink, told apart by `type`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Protocol, runtime_checkable

from pydantic import Discriminator, Field, SecretStr, Tag, field_validator

from tailrace_common.secrets import redact, shown_database
from tailrace_common.settings.sections.images import ImagesSection
from tailrace_common.settings.sections.section import Section
from tailrace_common.settings.sections.template import require_template
from tailrace_common.settings.sinks.cassandra import DAY_SECONDS, CassandraSinkSettings, LogTablesSinkSettings
from tailrace_common.settings.sinks.delta import DeltaSinkSettings
from tailrace_common.settings.sinks.files import FilesSinkSettings
from tailrace_common.settings.sinks.http import HttpSinkSettings
from tailrace_common.settings.sinks.iceberg import IcebergSinkSettings
from tailrace_common.settings.sinks.kafka import KafkaSinkSettings
from tailrace_common.settings.sinks.opensearch import OpensearchSinkSettings
from tailrace_common.settings.sinks.rabbitmq import RabbitmqSinkSettings


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
    on_drop: Literal["keep", "clear", "new-table"] = Field(
        default="keep",
        description="What becomes of a source table that was dropped and made again: its rows stay under another name, "
        "or go, or stay while the new one gets another name",
    )
    merge_horizon_seconds: Annotated[int, Field(ge=0)] = Field(
        default=10 * DAY_SECONDS,
        description="Deletions are forgotten so long after they were written and came; older changes then go to dead "
        "letters. At least the tables' gc_grace_seconds and the topics' retention; 0: never",
    )

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


class ConsoleSinkSettings(ImagesSection):
    """Changes on stdout: a table on a terminal, JSON lines when piped."""

    type: Literal["console"] = Field(default="console", description="What kind of sink this is")
    format: Literal["auto", "table", "json"] = Field(
        default="auto", description='"table", "json", or "auto": as stdout is a terminal or not'
    )

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        return "stdout"


SinkSettings = (
    SqlSinkSettings
    | LogTablesSinkSettings
    | CassandraSinkSettings
    | KafkaSinkSettings
    | HttpSinkSettings
    | RabbitmqSinkSettings
    | FilesSinkSettings
    | DeltaSinkSettings
    | IcebergSinkSettings
    | OpensearchSinkSettings
    | ConsoleSinkSettings
)


@runtime_checkable
class Identified(Protocol):
    """A section whose `location` does not tell all stores apart, since some of its address may be secret."""

    @property
    def identity(self) -> str: ...


def identity_of(section: SinkSettings) -> str:
    """What tells a sink's store from others; not to be shown: it may have a token."""
    return section.identity if isinstance(section, Identified) else section.location


SINK_TYPES: Final[Mapping[str, type[SinkSettings]]] = {
    "sql": SqlSinkSettings,
    "log-tables": LogTablesSinkSettings,
    "cassandra": CassandraSinkSettings,
    "kafka": KafkaSinkSettings,
    "http": HttpSinkSettings,
    "rabbitmq": RabbitmqSinkSettings,
    "files": FilesSinkSettings,
    "delta": DeltaSinkSettings,
    "iceberg": IcebergSinkSettings,
    "opensearch": OpensearchSinkSettings,
    "console": ConsoleSinkSettings,
}


def _type_of(value: Any) -> str:
    """A section without `type` is of the first kind."""
    named = value.get("type", "sql") if isinstance(value, Mapping) else getattr(value, "type", "sql")
    return str(named)


def _named(types: Mapping[str, object]) -> str:
    *most, last = (f'"{name}"' for name in types)
    return f"{', '.join(most)} or {last}"


AnySinkSettings = Annotated[
    Annotated[SqlSinkSettings, Tag("sql")]
    | Annotated[LogTablesSinkSettings, Tag("log-tables")]
    | Annotated[CassandraSinkSettings, Tag("cassandra")]
    | Annotated[KafkaSinkSettings, Tag("kafka")]
    | Annotated[HttpSinkSettings, Tag("http")]
    | Annotated[RabbitmqSinkSettings, Tag("rabbitmq")]
    | Annotated[FilesSinkSettings, Tag("files")]
    | Annotated[DeltaSinkSettings, Tag("delta")]
    | Annotated[IcebergSinkSettings, Tag("iceberg")]
    | Annotated[OpensearchSinkSettings, Tag("opensearch")]
    | Annotated[ConsoleSinkSettings, Tag("console")],
    Discriminator(
        _type_of,
        custom_error_type="sink_type",
        custom_error_message=f"type must be {_named(SINK_TYPES)}; `tailrace sinks` says what they are",
    ),
]
