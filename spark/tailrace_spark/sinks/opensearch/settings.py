"""The section of a sink that writes to OpenSearch or Elasticsearch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.secrets import carries_user, origin
from tailrace_common.sections.section import DAY_SECONDS, MergeHorizon, Positive, Seconds
from tailrace_common.sections.sink import Dataset, SinkSettings, SourceTable
from tailrace_common.sections.template import fit, require_template

_LONGEST_INDEX: Final = 230  # bytes; 255 with what stands behind it
_SHORTEST_TABLE: Final = 20
_NAMELESS: Final = "table"


class OpensearchSinkSettings(SinkSettings):
    """An index for each source table, whose documents follow its rows: docs/sinks/opensearch.md."""

    by_subscription: ClassVar[frozenset[str]] = frozenset({"index", "bulk_kibibytes", "bulk_documents"})
    type: Literal["opensearch"] = Field(default="opensearch", description="What kind of sink this is")
    url: str = Field(
        repr=False,
        examples=["https://search.example.org:9200"],
        description="Address of the cluster, without user and password",
    )
    username: str | None = Field(default=None, examples=["tailrace"], description="User, for basic authentication")
    password: SecretStr | None = Field(default=None, examples=["..."], description="Password of that user")
    password_file: Path | None = Field(
        default=None, examples=["/run/secrets/opensearch"], description="File that holds it, instead of `password`"
    )
    api_key: SecretStr | None = Field(
        default=None, examples=["..."], description="Sent as Authorization: ApiKey, instead of user and password"
    )
    api_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/opensearch-key"], description="File that holds it, instead of `api_key`"
    )
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/opensearch-ca.pem"],
        description="PEM file of the authorities to trust. Unset: the system's",
    )
    index: str = Field(
        default="{keyspace}.{table}",
        description="Name under which a source table is searched: an alias, in lower case, of an index NAME-000001",
    )
    shards: Positive | None = Field(
        default=None, examples=[1], description="Shards of indexes that are made. Unset: as the cluster has it"
    )
    replicas: Annotated[int, Field(ge=0)] | None = Field(
        default=None, examples=[1], description="Their replicas. Unset: as the cluster has it"
    )
    bulk_kibibytes: Positive = Field(default=5120, description="A bulk request is ended at about this size")
    bulk_documents: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=2000, description="and at so many documents; no more are read at a time either"
    )
    bulk_requests: Annotated[int, Field(ge=1, le=32)] = Field(
        default=3, description="So many requests are under way at once, each of rows of other partitions"
    )
    timeout_seconds: Seconds = Field(default=60, description="How long an answer may take")
    retry_seconds: Seconds = Field(default=30, description="A request is tried again so long; then the batch waits")
    sweep_seconds: Seconds = Field(default=10, description="What has expired is looked for so often")
    merge_horizon_seconds: MergeHorizon = 10 * DAY_SECONDS

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if carries_user(value):
            raise ValueError("must be without user and password: give username and password_file")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and a host")
        if parts.query or parts.fragment:
            raise ValueError("must end behind host, port and path")
        return value.rstrip("/")

    @field_validator("index")
    @classmethod
    def _check_index(cls, value: str) -> str:
        return _checked(
            value, require_template(value, "keyspace", "table", needed="table").format(keyspace="k", table="t")
        )

    @model_validator(mode="after")
    def _check_credentials(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password need each other")
        if self.username is not None and self.api_key is not None:
            raise ValueError("username and api_key are both given: keep one")
        if self.tls_ca_file is not None and not self.url.startswith("https:"):
            raise ValueError("tls_ca_file needs a url that begins with https://")
        return self

    @property
    def location(self) -> str:
        """Where it writes, for people; a path may be a secret."""
        return origin(self.url)

    @property
    def identity(self) -> str:
        """What tells one cluster from another; not to be shown."""
        return self.url

    def index_of(self, keyspace: str, table: str) -> str:
        """The name of a table's index where it is free.

        The table's name alone is cut, as all indexes are found by the rest of the template. To Cassandra `_` is a name,
        and no index begins with it.
        """
        rest = len(self.index.format(keyspace=keyspace, table=""))
        room = (_LONGEST_INDEX - rest) // self.index.count("{table}")
        named = self.index.format(keyspace=keyspace.lower(), table=fit(table.lower(), max(room, _SHORTEST_TABLE)))
        return fit(named.lstrip("-_+") or _NAMELESS, _LONGEST_INDEX)

    def dataset(self, table: SourceTable) -> Dataset:
        """The index. OpenLineage has no scheme of its own for it."""
        parts, name = urlsplit(self.url), self.index_of(table.keyspace, table.name)
        return Dataset(f"opensearch://{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}", name)


def _checked(value: str, name: str) -> str:
    """The value, whose name a server takes for an index."""
    if name != name.lower() or name[0] in "-_+." or any(character in '\\/*?"<>| ,#:' for character in name):
        raise ValueError('must be in lower case, without \\ / * ? " < > | , # : and spaces, and not begin with - _ + .')
    return value
