"""librdkafka's settings as the Java client's, for Spark's Kafka source."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

from tailrace_common.properties.passthrough import Scalar
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.topics import Internal, check_prefix, internal_topic
from tailrace_spark.source.private_key import plain_pkcs8

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
