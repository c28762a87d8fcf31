"""The settings of bearer tokens: whose they are, for whom, and what they allow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from tailrace_common.sections.section import Seconds, Section, is_loopback

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


class OidcSettings(Section):
    """Bearer tokens of an OpenID Connect issuer, which the HTTP API takes beside API keys."""

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

    @field_validator("issuer")
    @classmethod
    def _check_issuer(cls, value: str) -> str:
        parts = urlsplit(value)
        safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
        if not safe or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
            raise ValueError("must be an https:// URL without user, query and fragment; http:// on a loopback address")
        return value
