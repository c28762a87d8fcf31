"""Settings that another program defines: dotted names passed through unchanged, secrets hidden, files read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import ConfigDict, RootModel, SecretStr, model_validator

from tailrace_common.secrets import is_secret_name

Scalar = bool | int | float | str
# Names of librdkafka that end in ".file" themselves, so that no file is read for them.
_FILES_THEMSELVES: Final = frozenset(
    {
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.jwt.template.file",
    }
)
_USER_INFO: Final = re.compile(r"://[^/\s]*@")


def flatten(tree: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """TOML's bare `a.b = 1` is a table in a table: back to {"a.b": 1}. Values other than tables stay as they are."""
    flat: dict[str, object] = {}
    for name, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def read_secret_file(path: str | Path) -> str:
    """The content of a secret's file without the line end that editors add. Raises ValueError with the path."""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ValueError(f"cannot read {path}: {reason}") from None


class Properties(RootModel[dict[str, bool | int | float | str | SecretStr]]):
    """Named values for another program. `name_file = "path"` gives `name` the file's content, as a secret."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)
    defaults: ClassVar[Mapping[str, Scalar]] = {}
    owned: ClassVar[Mapping[str, str]] = {}
    examples: ClassVar[Mapping[str, Scalar]] = {}
    secrets: ClassVar[frozenset[str]] = frozenset()
    """Names that are secret here, besides those that are everywhere."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, data: object) -> object:
        if isinstance(data, Properties):
            return data.root
        if not isinstance(data, Mapping):
            raise ValueError("must be a table of names and values")
        properties: dict[str, object] = dict(cls.defaults)
        given = flatten(data)
        for name, value in given.items():
            if name in cls.owned:
                raise ValueError(f"{name} is not yours to set: {cls.owned[name]}")
            target = name.removesuffix("_file").removesuffix(".file")
            if target != name and name not in _FILES_THEMSELVES:
                if target in given:
                    raise ValueError(f"{target} and {name} are both given: keep one")
                properties[target] = SecretStr(read_secret_file(str(value)))
            elif not isinstance(value, bool | int | float | str | SecretStr):
                raise ValueError(f"{name} must be a string, number or boolean")
            else:
                properties[name] = SecretStr(str(value)) if is_secret_name(name) or name in cls.secrets else value
        return properties

    def reveal(self) -> dict[str, Scalar]:
        """The properties with their secrets in the clear, for the program they are for. Never log this."""
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self.root.items()
        }


class KafkaSettings(Properties):
    """librdkafka's configuration, by its own names: `bootstrap.servers`, `security.protocol`, `sasl.password`..."""

    defaults: ClassVar[Mapping[str, Scalar]] = {"bootstrap.servers": "127.0.0.1:9092"}
    owned: ClassVar[Mapping[str, str]] = {
        "transactional.id": "it is <prefix>.<host id>, and fences a second agent for the same node",
        "enable.idempotence": "the producer is always idempotent",
        "isolation.level": "readers are always read_committed",
        "transaction.timeout.ms": "set agent.transaction_timeout_seconds",
        "queue.buffering.max.kbytes": "set agent.buffer_mebibytes",
        "queue.buffering.max.messages": "it follows agent.buffer_mebibytes",
        "message.max.bytes": "set topics.max_message_bytes",
    }

    examples: ClassVar[Mapping[str, Scalar]] = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "/etc/tailrace/kafka-ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "tailrace",
        "sasl.password_file": "/run/secrets/kafka-password",
    }

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,...` of the brokers to start from."""
        return str(self.reveal()["bootstrap.servers"])


class RegistrySettings(Properties):
    """The registry's client, by the names of confluent-kafka's SchemaRegistryClient: `url`, `ssl.ca.location`..."""

    examples: ClassVar[Mapping[str, Scalar]] = {
        "url": "https://registry:8081",
        "ssl.ca.location": "/etc/tailrace/registry-ca.pem",
        "basic.auth.user.info_file": "/run/secrets/registry-user-and-password",
    }

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if _USER_INFO.search(str(self.root.get("url", ""))):
            raise ValueError("url must be without user and password: give them as basic.auth.user.info_file")
        return self


class SparkSettings(Properties):
    """Spark's configuration, by its own names: `spark.master`, `spark.executor.memory`..."""

    examples: ClassVar[Mapping[str, Scalar]] = {"spark.master": "local[2]", "spark.executor.memory": "4g"}


class JavaKafkaSettings(Properties):
    """Java's Kafka client configuration, by its own names: `ssl.truststore.location`..."""

    examples: ClassVar[Mapping[str, Scalar]] = {
        "ssl.truststore.location": "/etc/tailrace/kafka.p12",
        "ssl.truststore.type": "PKCS12",
    }
