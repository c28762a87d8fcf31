"""TLS contexts of clients: what they check, and which setting an error names."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tailrace_common.tls import ClientCertificate, tls_context
from tailrace_schemas.errors import SettingsError


def test_it_trusts_the_system_and_checks_the_name_unless_told_otherwise() -> None:
    context = tls_context("sink.x", None)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    careless = tls_context("cluster", None, verify_host=False)
    assert careless.verify_mode is ssl.CERT_REQUIRED
    assert not careless.check_hostname


def test_an_error_names_the_setting_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("no PEM", "utf-8")
    for name in ("absent.pem", "no.pem"):
        with pytest.raises(SettingsError, match=rf"^sink\.x\.tls_ca_file: .*{name}: "):
            tls_context("sink.x", tmp_path / name)
        own = ClientCertificate(tmp_path / name, None, None)
        with pytest.raises(SettingsError, match=rf"^cluster\.tls_certificate_file: .*{name}: "):
            tls_context("cluster", None, own=own)
