"""What is a secret, and text without them."""

from __future__ import annotations

import pytest

from tailrace_common.secrets import is_secret_name, redact


@pytest.mark.parametrize(
    "name",
    [
        "password",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.password",
        "ssl.keystore.key",
        "basic.auth.user.info",
        "bearer.auth.token",
        "sasl.oauthbearer.client.secret",
        "sasl.jaas.config",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "sasl.username", "ssl.ca.location", "ssl.key.location", "token", "key", "ssl.ca.pem"]
)
def test_open_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://u:p@ss@h/d", "postgresql+psycopg://u:**********@h/d"),
        ("http://u@h/x and http://h:80/x", "http://u@h/x and http://h:80/x"),
        ("sasl.password=abc, x=1", "sasl.password=**********, x=1"),
        ('{"password": "abc"}', '{"password": "**********"}'),
        ("the password is wrong", "the password is wrong"),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown
