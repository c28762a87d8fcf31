"""What a client trusts, and shows, when it connects with TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from tailrace_schemas.errors import SettingsError


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM files for mutual TLS; without `key` the certificate's file has the private key too."""

    certificate: Path
    key: Path | None
    password: str | None


def tls_context(
    section: str, ca_file: Path | None, *, own: ClientCertificate | None = None, verify_host: bool = True
) -> ssl.SSLContext:
    """A client's context: it trusts the authorities of a PEM file, or the system's.

    Raises SettingsError for a file that cannot be read or is none; it begins with the setting, `<section>.tls_ca_file`
    or `<section>.tls_certificate_file`.
    """
    setting, file = "tls_ca_file", ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
        context.check_hostname = verify_host
        if own is not None:
            setting, file = "tls_certificate_file", own.certificate
            context.load_cert_chain(own.certificate, own.key, own.password)
    except OSError as error:  # SSLError is one
        raise SettingsError(f"{section}.{setting}: {file}: {error}") from None
    return context
