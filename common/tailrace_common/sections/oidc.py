"""The settings of an issuer of tokens: whose they are, for whom, what they allow, and how one signs in on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.sections.section import Seconds, Section, is_loopback

CALLBACK: Final = "/login/callback"
"""The path at which the page takes the issuer's answer."""

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


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
