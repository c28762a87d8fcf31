"""How a Cassandra cluster is reached: the same settings wherever one is named."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, model_validator

from tailrace_common.sections.section import Port, Seconds, Section
from tailrace_common.tls import ClientCertificate, tls_context


class CassandraSettings(Section):
    """Addresses, login and TLS of one cluster."""

    contact_points: tuple[str, ...] = Field(default=("127.0.0.1",), min_length=1, description="Addresses to connect to")
    port: Port = Field(default=9042, description="The native protocol's port")
    username: str | None = Field(
        default=None, examples=["tailrace"], description="Role to log in as. Unset: no authentication"
    )
    password: SecretStr | None = Field(default=None, examples=["..."], description="Its password")
    password_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/cassandra-password"],
        description="File that holds the password, instead of `password`",
    )
    protocol_version: Annotated[int, Field(ge=3, le=5)] | None = Field(
        default=None, examples=[5], description="Native protocol version, 3 to 5. Unset: negotiated"
    )
    connect_timeout_seconds: Seconds = Field(default=10, description="How long a connection may take")
    request_timeout_seconds: Seconds = Field(default=10, description="How long a query may take")
    tls: bool = Field(default=False, description="Connect with TLS")
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/ca.pem"],
        description="PEM file of the authorities to trust. Unset: the system's",
    )
    tls_certificate_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/client.pem"],
        description="PEM file of the client's certificate, for mutual TLS",
    )
    tls_key_file: Path | None = Field(
        default=None, examples=["/etc/tailrace/client.key"], description="PEM file of the client's private key"
    )
    tls_key_password: SecretStr | None = Field(
        default=None, examples=["..."], description="Password of the private key"
    )
    tls_key_password_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/client-key-password"],
        description="File that holds it, instead of `tls_key_password`",
    )
    tls_verify_host: bool = Field(default=True, description="Refuse a certificate that does not name the host")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.username is not None and self.password is None:
            raise ValueError("username needs password or password_file")
        if self.password is not None and self.username is None:
            raise ValueError("password needs username")
        if not self.tls and (self.tls_ca_file or self.tls_certificate_file or self.tls_key_file):
            raise ValueError("tls_... files are given, but tls is false: set tls = true")
        return self

    @property
    def location(self) -> str:
        """Where the cluster is, for people."""
        return f"{self.contact_points[0]}:{self.port}"

    def tls_context(self, section: str) -> ssl.SSLContext | None:
        """What these settings say of TLS, None where they want none. Raises SettingsError that names the section."""
        if not self.tls:
            return None
        certificate = None
        if self.tls_certificate_file is not None:
            password = None if self.tls_key_password is None else self.tls_key_password.get_secret_value()
            certificate = ClientCertificate(self.tls_certificate_file, self.tls_key_file, password)
        return tls_context(section, self.tls_ca_file, own=certificate, verify_host=self.tls_verify_host)
