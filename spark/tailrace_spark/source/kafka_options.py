"""librdkafka's settings as the Java client's, for Spark's Kafka source, and passwords in them hidden."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pyspark.sql import SparkSession

from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import Internal, check_prefix, internal_topic

# Names that mean the same to both clients.
_SAME: Final = (
    "bootstrap.servers",
    "client.id",
    "client.dns.lookup",
    "client.rack",
    "security.protocol",
    "sasl.mechanism",
    "sasl.kerberos.service.name",
    "ssl.keystore.password",
    "ssl.endpoint.identification.algorithm",
)
_SCRAM_OR_PLAIN: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

ReadText = Callable[[str], str]
NAMES: Final = "(?i)secret|password|token|access[.]?key|jaas|keystore"
"""Java's regular expression of the names of options whose values are secret, Spark's own among them."""

# The first relation of a stream is shown as Scala shows a map, whatever the names in it: so values are looked for too.
_QUOTED: Final = r'(?<=password=")(?:[^"\\]|\\.)*'
_IN_MAP: Final = r"(?<=password -> )[^,)]+"
_KEY: Final = r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*-----END [A-Z ]*PRIVATE KEY-----"
_OF_SESSION: Final = (
    ("spark.sql.redaction.options.regex", NAMES),
    ("spark.sql.redaction.string.regex", f"{_QUOTED}|{_IN_MAP}|{_KEY}"),
)
# What Spark has for these where nobody set them: a value, or another setting.
_SPARKS_OPTIONS: Final = "(?i)url"
_STRING_OF_SPARK: Final = "spark.redaction.string.regex"


def java_options(
    librdkafka: Mapping[str, Scalar], java: Mapping[str, Scalar], read: ReadText | None = None
) -> dict[str, str]:
    """The options `kafka.<name>` of Spark's source: what [kafka] says, translated, then what `java` says as it is.

    PEM files are handed over as text, keys without their password, so that executors need no files; Spark shows them
    as little as passwords (session). `read` reads one file. Settings of [kafka] that
    concern producers or librdkafka alone are left out. Raises SettingsError for a file that cannot be read, or a
    key that cannot be opened.
    """
    options = {name: str(librdkafka[name]) for name in _SAME if name in librdkafka}
    mechanism = librdkafka.get("sasl.mechanism", librdkafka.get("sasl.mechanisms"))
    if mechanism is not None:
        options["sasl.mechanism"] = str(mechanism)
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        options["ssl.endpoint.identification.algorithm"] = ""  # Java's word for none
    if module := _SCRAM_OR_PLAIN.get(str(mechanism)):
        user, password = (str(librdkafka.get(f"sasl.{field}", "")) for field in ("username", "password"))
        options["sasl.jaas.config"] = f"{module} required username={_jaas(user)} password={_jaas(password)};"
    options.update(_tls(librdkafka, read or _read_pem))
    options.update({name: str(value) for name, value in java.items()})
    return {f"kafka.{name}": value for name, value in options.items()}


def table_topics(prefix: str) -> str:
    """A Java regular expression of every table's topic under the prefix; internal topics have one part less."""
    return rf"{_quoted(check_prefix(prefix))}\.[^.]+\.[^.]+(\.-[0-9a-f]{{6}})?"


def without_internal(pattern: str, prefix: str) -> str:
    """The Java regular expression less the agents' own topics under the prefix: their records are no changes."""
    return without_topics(pattern, [internal_topic(prefix, kind) for kind in Internal])


def without_topics(pattern: str, topics: Collection[str]) -> str:
    """The Java regular expression less some topics."""
    left_out = "|".join(map(_quoted, topics))
    return rf"(?!(?:{left_out})$)(?:{pattern})" if topics else pattern


def _quoted(name: str) -> str:
    return re.sub(r"([.\-])", r"\\\1", name)


def _tls(librdkafka: Mapping[str, Scalar], read: ReadText) -> dict[str, str]:
    def pem(name: str) -> str | None:
        text, location = librdkafka.get(f"ssl.{name}.pem"), librdkafka.get(f"ssl.{name}.location")
        return str(text) if text is not None else None if location is None else read(str(location))

    options: dict[str, str] = {}
    if (authorities := pem("ca")) is not None:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if "ssl.keystore.location" in librdkafka:  # librdkafka's is always of this type
        options |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(librdkafka["ssl.keystore.location"])}
    certificate, key = pem("certificate"), pem("key")
    if certificate is not None and key is not None:
        password = librdkafka.get("ssl.key.password")
        plain = plain_pkcs8(key, None if password is None else str(password))
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate}
        options["ssl.keystore.key"] = plain
    return options


def _jaas(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _read_pem(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"[kafka] cannot read {path}: {error}") from None


def plain_pkcs8(pem: str, password: str | None) -> str:
    """The private key of any PEM text as PKCS 8 without encryption.

    Java's client takes no other form than PKCS 8, and of encrypted ones not those that OpenSSL makes today (PBES2).
    Raises SettingsError, without a word of the key, for what is none or has another password.
    """
    try:
        key = load_pem_private_key(pem.encode(), None if password is None else password.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"[kafka] ssl.key: no PEM key, or ssl.key.password is not its own: {error}") from None
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def widened(user_pattern: str | None, own_pattern: str) -> str:
    """Java's regular expression for what theirs or ours matches."""
    if not user_pattern:
        return own_pattern
    return user_pattern if own_pattern in user_pattern else f"(?:{user_pattern})|(?:{own_pattern})"


def widen_redaction(spark: SparkSession) -> None:
    """Have this session hide Kafka's passwords and keys in plans that it shows; nothing that it hid is shown by that.

    The rest (`spark.redaction.regex`: event log, page of the environment) is settled when Spark starts.
    """
    defaults = (_SPARKS_OPTIONS, spark.conf.get(_STRING_OF_SPARK, None))
    for (name, pattern), default in zip(_OF_SESSION, defaults, strict=True):
        current = spark.conf.get(name, None) or default
        if (both := widened(current, pattern)) != current:
            spark.conf.set(name, both)
