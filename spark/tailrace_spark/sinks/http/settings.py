"""The section of a sink that posts JSON over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.secrets import carries_user, origin
from tailrace_common.sections.section import Positive, Seconds
from tailrace_common.sections.sink import Dataset, SourceTable, TransactionsSection
from tailrace_common.sections.template import key_columns, require_route

ClientError = Annotated[int, Field(ge=400, le=499)]


class HttpSinkSettings(TransactionsSection):
    """Changes in batches, posted as JSON to an address of yours: docs/sinks/http.md."""

    by_subscription: ClassVar[frozenset[str]] = frozenset({"batch_records", "batch_kibibytes"})
    type: Literal["http"] = Field(default="http", description="What kind of sink this is")
    url: str = Field(
        repr=False,
        examples=["https://example.org/changes"],
        description="Address that batches are posted to, without credentials. Behind the host it may have "
        "{keyspace}, {table} and columns of the partition key, as {key.country}",
    )
    bearer_token: SecretStr | None = Field(
        default=None, examples=["..."], description="Sent as Authorization: Bearer. Unset: no such header"
    )
    bearer_token_file: Path | None = Field(
        default=None, examples=["/run/secrets/http-token"], description="File that holds it, instead of `bearer_token`"
    )
    signing_key: SecretStr | None = Field(
        default=None,
        examples=["whsec_..."],
        description="Key that requests are signed with (HMAC-SHA256, as standardwebhooks.com has it). Unset: unsigned",
    )
    signing_key_file: Path | None = Field(
        default=None, examples=["/run/secrets/http-key"], description="File that holds it, instead of `signing_key`"
    )
    next_signing_key: SecretStr | None = Field(
        default=None,
        examples=["whsec_..."],
        description="A second key: while keys are changed each request has both signatures",
    )
    next_signing_key_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/http-next-key"],
        description="File that holds it, instead of `next_signing_key`",
    )
    batch_records: Positive = Field(default=100, description="Most changes of one request")
    batch_kibibytes: Positive = Field(default=1024, description="or the size at which one is sent")
    lanes: Annotated[int, Field(ge=1, le=64)] = Field(
        default=4, description="Most requests under way at once; a key's changes are always in the same lane"
    )
    timeout_seconds: Seconds = Field(
        default=10, description="How long an endpoint may be silent, and say more than a status"
    )
    retry_seconds: Seconds = Field(default=30, description="A request is tried again so long; then the batch waits")
    hold_on: tuple[ClientError, ...] = Field(
        default=(),
        examples=[[401, 403]],
        description="Statuses 4xx that are waited out, besides 408 and 429. All others go to the dead letters",
    )
    breaker_failures: Positive = Field(default=5, description="After so many failures in a row nothing is sent for")
    breaker_seconds: Seconds = Field(default=30, description="so long; then one request tries")
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/http-ca.pem"],
        description="PEM file of the authorities to trust. Unset: the system's",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with http:// or https:// and a host")
        if parts.username or parts.password or carries_user(value):
            raise ValueError("must be without user and password: give bearer_token_file")
        if "{" in parts.netloc or "}" in parts.netloc:
            raise ValueError("may have braces behind its host alone: no value decides where changes go")
        return require_route(value, "keyspace", "table")

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.next_signing_key is not None and self.signing_key is None:
            raise ValueError("next_signing_key needs signing_key")
        return self

    @property
    def location(self) -> str:
        """Where it writes, for people: what follows the host, or its port, may be a secret."""
        return origin(self.url)

    @property
    def identity(self) -> str:
        """What tells one endpoint from another; not to be shown."""
        return self.url.partition("?")[0]

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """As SinkSettings says."""
        return {"url": key_columns(self.url)}

    def dataset(self, table: SourceTable) -> Dataset:  # noqa: ARG002 - all tables go to one address
        """The server. Its path is left out: people put tokens there."""
        return Dataset(origin(self.url), "changes")
