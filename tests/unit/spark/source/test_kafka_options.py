"""librdkafka's settings in the Java client's words."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import Internal, internal_topic
from tailrace_spark.source.kafka_options import java_options, table_topics, without_internal

KEY = ec.generate_private_key(ec.SECP256R1())


def pem(form: PrivateFormat, password: str | None = None) -> str:
    """The key, as the operator may have it."""
    hidden = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
    return KEY.private_bytes(Encoding.PEM, form, hidden).decode()


PLAIN = pem(PrivateFormat.PKCS8)
KEYS = {
    "plain": PLAIN,
    "encrypted": pem(PrivateFormat.PKCS8, "of the key"),
    "traditional": pem(PrivateFormat.TraditionalOpenSSL),
}


@pytest.mark.parametrize(
    ("librdkafka", "java", "expected"),
    [
        ({"bootstrap.servers": "k:1", "linger.ms": 5}, {}, {"bootstrap.servers": "k:1"}),
        (
            {"sasl.mechanisms": "PLAIN", "sasl.username": 'u"1', "sasl.password": "p\\"},
            {},
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
                'username="u\\"1" password="p\\\\";',
            },
        ),
        (
            {"ssl.ca.location": "ca", "ssl.certificate.location": "cert", "ssl.key.location": "plain"},
            {},
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "<ca>",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "<cert>",
                "ssl.keystore.key": PLAIN,
            },
        ),
        (
            {"ssl.certificate.pem": "<cert>", "ssl.key.location": "encrypted", "ssl.key.password": "of the key"},
            {},
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "<cert>", "ssl.keystore.key": PLAIN},
        ),
        (
            {"ssl.certificate.pem": "<cert>", "ssl.key.location": "traditional"},
            {},
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "<cert>", "ssl.keystore.key": PLAIN},
        ),
        (
            {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"},
            {},
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "k.p12", "ssl.keystore.password": "p"},
        ),
        ({"ssl.endpoint.identification.algorithm": "none"}, {}, {"ssl.endpoint.identification.algorithm": ""}),
        ({"bootstrap.servers": "k:1"}, {"bootstrap.servers": "j:2", "fetch.max.bytes": 7},
         {"bootstrap.servers": "j:2", "fetch.max.bytes": "7"}),
    ],
)  # fmt: skip
def test_translation(librdkafka: Mapping[str, Scalar], java: Mapping[str, Scalar], expected: Mapping[str, str]) -> None:
    options = java_options(librdkafka, java, read=lambda path: KEYS.get(path, f"<{path}>"))
    assert options == {f"kafka.{name}": value for name, value in expected.items()}


@pytest.mark.parametrize("password", [None, "another"])
def test_a_key_that_cannot_be_opened(password: str | None) -> None:
    own = {} if password is None else {"ssl.key.password": password}
    settings = {"ssl.certificate.pem": "c", "ssl.key.pem": KEYS["encrypted"], **own}
    with pytest.raises(SettingsError, match=r"ssl\.key\.password") as caught:
        java_options(settings, {})
    assert KEYS["encrypted"].splitlines()[1] not in str(caught.value)


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match="/nowhere/ca"):
        java_options({"ssl.ca.location": "/nowhere/ca.pem"}, {})


@pytest.mark.parametrize(
    ("topic", "matches"),
    [
        ("p.x.ks.t", True),
        ("p.x.ks.t.-0a1b2c", True),
        ("p.x.a-2d-b.t", True),
        ("p.x.offsets", False),
        ("p.x.schema-history", False),
        ("pqx.ks.t", False),
        ("p.x.ks.t.other", False),
    ],
)
def test_the_topics_of_tables(topic: str, matches: bool) -> None:
    assert bool(re.fullmatch(table_topics("p.x"), topic)) is matches


@pytest.mark.parametrize("pattern", [r"p-1\.x\..*", ".*", "nothing|.*"])
def test_a_pattern_never_takes_the_agents_own_topics(pattern: str) -> None:
    found = re.compile(without_internal(pattern, "p-1.x"))
    own = [internal_topic("p-1.x", which) for which in Internal]
    assert [topic for topic in own if found.fullmatch(topic)] == []
    tables = ["p-1.x.ks.t", "p-1.x.schemas.offsets", "p-1.x.offsets.t", "p-1.x.offsetsx"]
    assert [topic for topic in tables if not found.fullmatch(topic)] == []
