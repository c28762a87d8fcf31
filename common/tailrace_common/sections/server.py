"""The settings of a server of subscriptions: its meta database, workers and HTTP API, and the issuer of its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.sections.section import EXISTING_ROWS, ListenAddress, Port, Positive, Seconds, Section, is_loopback

CALLBACK: Final = "/login/callback"
"""The path at which the page takes the issuer's answer."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]
SERVER_PORT: Final = 8085


class OidcSettings(Section):
    """An OpenID Connect issuer: the HTTP API takes its bearer tokens beside API keys, and one may sign in by it."""

    issuer: str = Field(
        examples=["https://login.example.com/realms/ops"],
        description="The issuer, letter for letter as its tokens name it (`iss`). Its keys are found by its discovery "
        "document, below /.well-known/openid-configuration",
    )
    audience: str = Field(
        min_length=1, examples=["tailrace"], description="Whom tokens must be for (`aud`): the name of this API there"
    )
    roles: dict[str, Literal["read", "operate", "admin"]] = Field(
        min_length=1,
        examples=[{"tailrace-admins": "admin", "everybody": "read"}],
        description="What each value of the claim may do: read, operate or admin. Of several the highest counts",
    )
    role_claim: str = Field(
        default="roles",
        description='The claim with these values: a list, or words in a text. Dots lead into it: "realm_access.roles"',
    )
    subject_claim: str = Field(default="sub", description="The claim by which the audit names who it was")
    algorithms: tuple[Algorithm, ...] = Field(
        default=("RS256", "PS256", "ES256"), min_length=1, description="Signatures that are taken"
    )
    clock_skew_seconds: Annotated[float, Field(ge=0, le=300)] = Field(
        default=30, description="How far the clocks of issuer and server may differ"
    )
    keys_seconds: Seconds = Field(
        default=600,
        description="How long the issuer's keys are good without asking again. A token with a new key asks at once",
    )
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/issuer-ca.pem"],
        description="Authorities that the issuer's certificate is trusted by, PEM. Unset: the system's",
    )

    client_id: str | None = Field(
        default=None,
        min_length=1,
        examples=["tailrace-page"],
        description="The page's name at the issuer, whom its ID tokens are for. Unset: the page takes API keys alone",
    )
    client_secret: SecretStr | None = Field(
        default=None, examples=["..."], description="Its secret there. Unset: a public client, by PKCE alone"
    )
    client_secret_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/oidc-client"],
        description="File that holds it, instead of `client_secret`",
    )
    redirect_url: str | None = Field(
        default=None,
        examples=["https://cdc.example.com/login/callback"],
        description=f"Where the issuer sends browsers back, as registered there: the page's address and {CALLBACK}",
    )
    scopes: tuple[str, ...] = Field(
        default=("openid",), description="What is asked for; one that brings the claim of roles into the ID token"
    )
    session_seconds: Annotated[int, Field(ge=60, le=43_200)] = Field(
        default=3600,
        description="How long one stays signed in, with the role of then. After that the issuer is asked again",
    )

    @model_validator(mode="after")
    def _check_client(self) -> Self:
        if (self.client_id is None) != (self.redirect_url is None):
            raise ValueError("client_id and redirect_url need each other")
        if self.client_secret is not None and self.client_id is None:
            raise ValueError("client_secret needs client_id")
        if "openid" not in self.scopes or not all(scope.isprintable() and " " not in scope for scope in self.scopes):
            raise ValueError('scopes must have "openid", and no spaces')
        return self

    @field_validator("redirect_url")
    @classmethod
    def _check_redirect(cls, value: str | None) -> str | None:
        if value is not None and (not _is_safe(value) or not urlsplit(value).path.endswith(CALLBACK)):
            raise ValueError(f"must be an https:// URL that ends with {CALLBACK}; http:// on a loopback address")
        return value

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, value: str) -> str:
        if not _is_safe(value):
            raise ValueError("must be an https:// URL without user, query and fragment; http:// on a loopback address")
        return value


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    return safe and bool(parts.hostname) and not (parts.query or parts.fragment or "@" in parts.netloc)


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
