"""What is a secret, and text without them."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from tailrace_common.cli.console import say
from tailrace_common.cli.logs import set_up_logging
from tailrace_common.secrets import authorization, carries_user, is_secret_name, origin, redact, shown_database
from tailrace_common.settings import load_settings
from tailrace_schemas.errors import SettingsError, TailraceError

AZURE_KEY = "c2VjcmV0/a+2V5IHdpdGgg/c2xhc2hlcw=="
AZURE = f"DefaultEndpointsProtocol=https;AccountName=shop;AccountKey={AZURE_KEY};EndpointSuffix=core.windows.net"
AS_PORT = "12/34"
PASSWORDS = ("pa/ss", "pa ss", "p@ss", "a/b c@d", 'quo"ted', "it's", AS_PORT, "100% /x?y#z", "x://yz")


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
        "spark.hadoop.fs.s3a.encryption.key",
        "spark.hadoop.fs.s3a.session.key",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.shop.blob.core.windows.net",
        "azure_storage_account_key",
        "azure_storage_sas_key",
        "AccountKey",
        "sas_token",
        "google_service_account_key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "api_key",
    ],
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "bootstrap.servers",
        "sasl.username",
        "ssl.ca.location",
        "ssl.key.location",
        "token",
        "key",
        "ssl.ca.pem",
        "spark.hadoop.fs.azure.account.auth.type",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.assertion.private.key.file",
    ],
)
def test_open_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+psycopg://u:p@ss@h/d", "postgresql+psycopg://u:**********@h/d"),
        ("http://u@h/x and http://h:80/x", "http://u@h/x and http://h:80/x"),
        ("Illegal header value b'Bearer abc ': again", "Illegal header value b'Bearer **********': again"),
        (
            'return character(s) in header value: "ApiKey a\'b\\n"',
            'return character(s) in header value: "ApiKey **********"',
        ),
        ("'Bearer cut", "'Bearer **********'"),
        ("a bearer token is no password", "a bearer token is no password"),
        ("sasl.password=abc, x=1", "sasl.password=**********, x=1"),
        ('{"password": "abc"}', '{"password": "**********"}'),
        ("the password is wrong", "the password is wrong"),
        ("http://h:80/x, and write to me@example.org", "http://h:80/x, and write to me@example.org"),
        ("amqp://u:x y@h, amqp://v:z/w@k", "amqp://u:**********@h, amqp://v:**********@k"),
        ("http://[::1]:8081/subjects", "http://[::1]:8081/subjects"),
        ("'password': 'a b,c;d', 'x': 1", "'password': '**********', 'x': 1"),
        (
            "https://shop.blob.core.windows.net/c?sv=1&sig=ab%2Fcd&se=2",
            "https://shop.blob.core.windows.net/c?sv=1&sig=**********&se=2",
        ),
        (f"no access: {AZURE}", f"no access: {AZURE.replace(AZURE_KEY, '**********')}"),
        (
            f"spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net={AZURE_KEY}",
            "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net=**********",
        ),
    ],
)
def test_redact(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.promise("commands.secrets")
@pytest.mark.parametrize("secret", PASSWORDS)
@pytest.mark.parametrize("around", ["{}", "cannot connect to {}: refused", 'url = "{}"', "{}, {}"])
def test_passwords_with_any_characters(secret: str, around: str) -> None:
    """Slashes, blanks, quotes and at signs, wherever the URL stands."""
    url = f"postgresql+psycopg://user:{secret}@db.example.org:5432/shop"
    shown = redact(around.replace("{}", url))
    assert secret not in shown
    assert "user:**********@" in shown
    assert "db.example.org:5432/shop" in shown


@pytest.mark.promise("commands.secrets")
@pytest.mark.parametrize("secret", [*(f"http://u:{one}@h" for one in PASSWORDS), AZURE])
@pytest.mark.parametrize("json_lines", [False, True])
def test_secrets_in_logs_errors_and_words(secret: str, json_lines: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """As an argument, a field, an exception's text, and words for people."""
    stream = io.StringIO()
    set_up_logging("info", json_lines=json_lines, stream=stream)
    log = logging.getLogger("tailrace.agent")
    log.info("connecting to %s", secret, extra={"url": secret})
    try:
        raise TailraceError(f"cannot reach {secret}")
    except TailraceError as error:
        log.exception("failed")
        say(f"{error}")
    hidden = AZURE_KEY if secret == AZURE else secret.removeprefix("http://u:").removesuffix("@h")
    for text in (stream.getvalue(), capsys.readouterr().err):
        assert text
        assert hidden not in text
        assert json.dumps(hidden)[1:-1] not in text


@pytest.mark.promise("commands.secrets")
def test_secrets_in_settings_and_their_errors() -> None:
    """A repr shows none, and neither does the error of a setting beside it."""
    given = {
        "TAILRACE_STREAM__SPARK": json.dumps({"spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net": AZURE_KEY})
    }
    settings = load_settings(None, given)
    assert AZURE_KEY not in repr(settings)
    assert AZURE_KEY in settings.stream.spark.reveal().values()
    with pytest.raises(SettingsError) as raised:
        load_settings(None, {**given, "TAILRACE_SCHEMAS__REGISTRY__URL": "http://u:pa/ss word@h"})
    assert "without user and password" in str(raised.value)
    assert "word" not in str(raised.value).replace("password", "")
    assert AZURE_KEY not in str(raised.value)


@pytest.mark.promise("commands.secrets")
def test_a_secret_that_was_not_quoted_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[stream]\nhash_key = 47114711\n")
    with pytest.raises(SettingsError, match=r"stream\.hash_key must be a valid string$"):
        load_settings(tmp_path / "t.toml", {})


@pytest.mark.parametrize("key", ["", "\n"])
def test_an_empty_file_is_no_key_of_hashes(tmp_path: Path, key: str) -> None:
    (tmp_path / "key").write_text(key)
    given = {"TAILRACE_STREAM__HASH_KEY_FILE": str(tmp_path / "key")}
    load_settings(None, given)
    with pytest.raises(SettingsError, match="columns that are hashed need hash_key, or hash_key_file"):
        load_settings(None, {**given, "TAILRACE_STREAM__COLUMNS": '{"shop.orders.email": "hash"}'})


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://h:80/x/@me", False),
        ("http://[::1]:80/", False),
        ("http://a:80,http://b:81", False),
        ("s3://bucket/p@x", False),
        ("http://u@h", True),
        *((f"http://u:{password}@h:80/x", True) for password in PASSWORDS if password != AS_PORT),
    ],
)
def test_a_user_in_a_url_is_seen(url: str, expected: bool) -> None:
    assert carries_user(url) is expected


@pytest.mark.parametrize("password", PASSWORDS)
def test_shown_addresses_have_no_password(password: str) -> None:
    parts = [part for part in re.split(r"[/@?#]", password) if len(part) > 1]
    for shown in (origin(f"http://u:{password}@h:80/x"), shown_database(f"postgresql://u:{password}@h/d")):
        assert not [part for part in parts if part in shown], shown


@pytest.mark.parametrize("token", ["", "hunter2 ", "hunter2\nx", "hünter2"])
def test_a_token_that_no_header_can_have_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(SettingsError, match=r"^the key: may have") as refused:
        authorization("Bearer", token, "the key")
    assert "nter2" not in str(refused.value)


@pytest.mark.slow
def test_long_words_are_looked_through_once() -> None:
    """A megabyte of digits in a log line: a step for each pair of them would take hours."""
    digits = "ab" * 500_000
    assert redact(f"bytes {digits}") == f"bytes {digits}"
    assert redact(f"u://{digits}:x@h {digits}").endswith(digits)
