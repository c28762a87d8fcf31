"""The settings of a server of subscriptions: its meta database, its workers, its HTTP API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, SecretStr, model_validator

from tailrace_common.sections.oidc import OidcSettings
from tailrace_common.sections.section import EXISTING_ROWS, ListenAddress, Port, Positive, Seconds, Section, is_loopback

SERVER_PORT: Final = 8085


class ServerSettings(Section):
    """Subscriptions: who gets which table, by any number of servers on one meta database."""

    url: SecretStr = Field(
        default=SecretStr("sqlite:///tailrace-server.db"),
        description='SQLAlchemy URL of the meta database: "sqlite:///file.db" for servers on one machine, '
        '"postgresql://user:password@host/database" or "mysql://..." for several',
    )
    url_file: Path | None = Field(
        default=None, examples=["/run/secrets/meta-url"], description="File that holds the URL, instead of `url`"
    )
    checkpoints: str = Field(
        default="tailrace-checkpoints",
        description="Directory or URL for Spark's checkpoints of subscriptions. What is in it may go: progress is in "
        "the meta database",
    )
    lease_seconds: Annotated[float, Field(ge=3)] = Field(
        default=30, description="A worker that is gone for so long loses its subscriptions to the others"
    )
    most_subscriptions: Positive = Field(default=50, description="Most subscriptions that one worker runs at a time")
    share_reading: bool = Field(
        default=True,
        description="Read a topic once for all subscriptions of it that a worker runs, where they are equally far. "
        "false: each reads it for itself",
    )
    longest_pause_seconds: Seconds = Field(
        default=300, description="Longest pause between two tries of a subscription that fails"
    )
    snapshot: Literal["initial", "never"] = Field(
        default=EXISTING_ROWS,
        description='What new subscriptions do that do not say so. "initial" reads the rows that the tables have, by '
        '[cluster] and [snapshot], and follows the log meanwhile. "never" follows the log alone',
    )
    address: ListenAddress = Field(default="127.0.0.1", description="Host name or IP address of the HTTP API")
    port: Port = Field(default=SERVER_PORT, description="Its port")
    authentication: bool = Field(
        default=True, description="Ask for an API key. false: anybody may do anything, on a loopback address only"
    )
    tls_certificate_file: Path | None = Field(
        default=None, examples=["/etc/tailrace/server.pem"], description="Certificate of the HTTP API, PEM: then HTTPS"
    )
    tls_key_file: Path | None = Field(
        default=None, examples=["/etc/tailrace/server-key.pem"], description="Its private key, PEM"
    )
    proxies: tuple[str, ...] = Field(
        default=(),
        examples=[["127.0.0.1", "10.0.0.0/8"]],
        description="Addresses and networks of proxies in front of the HTTP API: what their X-Forwarded-For and "
        "X-Forwarded-Proto say of a caller counts. Empty: nobody's does",
    )
    most_body_bytes: Positive = Field(default=1 << 20, description="Largest request that the HTTP API reads")
    requests_per_second: Annotated[float, Field(gt=0)] = Field(
        default=50, description="Requests a second that this server takes of each API key or subject, in the long run"
    )
    requests_burst: Positive = Field(default=200, description="and at once. Others get 429, and when to come again")
    show_changes: bool = Field(
        default=False,
        description="Show the last changes of a subscription on its page, with its masks, to who may operate it",
    )
    oidc: OidcSettings | None = Field(
        default=None, description="Bearer tokens of an OpenID Connect issuer, which the HTTP API takes beside API keys"
    )

    @model_validator(mode="after")
    def _check_access(self) -> Self:
        if not self.authentication and not is_loopback(self.address):
            raise ValueError(
                f"authentication = false is for a loopback address alone, and {self.address} is none: set address = "
                '"127.0.0.1", or authentication = true and make keys by `tailrace api-keys add`'
            )
        if not self.authentication and self.oidc is not None:
            raise ValueError("authentication = false asks for no token: take [server.oidc] out, or set it true")
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file are given together")
        return self
