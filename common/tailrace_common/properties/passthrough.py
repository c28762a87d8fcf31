"""Settings that another program defines: dotted names passed through unchanged, secrets hidden, files read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final, Self

from pydantic import ConfigDict, RootModel, SecretStr, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from tailrace_common.properties.names import (
    REGISTRY_CLIENT,
    java_consumer_fault,
    librdkafka_fault,
    names_of,
    spark_fault,
    unknown,
)
from tailrace_common.secrets import carries_user, is_secret_name

Scalar = bool | int | float | str
PROPERTY_FAULT: Final = "property_fault"
"""The type of pydantic's error for a property that the other program would refuse, or not see."""


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
        flat = flatten(data)
        for name, value in flat.items():
            if name in cls.owned:
                raise ValueError(f"{name} is not yours to set: {cls.owned[name]}")
            target = name.removesuffix("_file").removesuffix(".file")
            if target != name and name not in cls.known():
                if target in flat:
                    raise ValueError(f"{target} and {name} are both given: keep one")
                properties[target] = SecretStr(read_secret_file(str(value)))
            elif not isinstance(value, bool | int | float | str | SecretStr):
                raise ValueError(f"{name} must be a string, number or boolean")
            else:
                properties[name] = SecretStr(str(value)) if is_secret_name(name) or name in cls.secrets else value
        cls._require_no_faults(
            {name: value for name, value in properties.items() if name not in cls.defaults or name in flat}
        )
        return properties

    @classmethod
    def _require_no_faults(cls, properties: Mapping[str, object]) -> None:
        """Raise pydantic's error with all that is wrong, each at its name, and without values."""
        faults = {name: cls.fault(name, _plain(value), properties) for name, value in properties.items()}
        details: list[InitErrorDetails] = [
            {"type": PydanticCustomError(PROPERTY_FAULT, "{words}", {"words": words}), "loc": (name,), "input": None}
            for name, words in faults.items()
            if words is not None
        ]
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)

    @classmethod
    def known(cls) -> Collection[str]:
        """The names that the other program documents. What of them ends in `.file` is a path, and no file is read."""
        return ()

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003 - for subclasses
        """What is wrong with one of the `configured` properties, without its value; None where nothing is."""
        return None

    def reveal(self) -> dict[str, Scalar]:
        """The properties with their secrets in the clear, for the program they are for. Never log this."""
        return {
            name: value.get_secret_value() if isinstance(value, SecretStr) else value
            for name, value in self.root.items()
        }


def _plain(value: object) -> Scalar:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    return value if isinstance(value, bool | int | float | str) else str(value)


class LibrdkafkaSettings(Properties):
    """Properties that librdkafka of this machine has, with values that it takes."""

    @classmethod
    def known(cls) -> Collection[str]:
        """As Properties says."""
        return names_of("librdkafka")

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003
        """Librdkafka's own answer."""
        return librdkafka_fault(name, value)


class KafkaSettings(LibrdkafkaSettings):
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
        "metadata.broker.list": "set bootstrap.servers, which Spark's Kafka client has too",
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

    @classmethod
    def known(cls) -> Collection[str]:
        """As Properties says."""
        return REGISTRY_CLIENT

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003
        """The registry's client refuses names that it does not have."""
        return None if name in REGISTRY_CLIENT else unknown(name, REGISTRY_CLIENT, "the registry's client")

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if carries_user(str(self.root.get("url", ""))):
            raise ValueError("url must be without user and password: give them as basic.auth.user.info_file")
        return self


class SparkSettings(Properties):
    """Spark's configuration, by its own names: `spark.master`, `spark.executor.memory`..."""

    examples: ClassVar[Mapping[str, Scalar]] = {"spark.master": "local[2]", "spark.executor.memory": "4g"}

    @classmethod
    def known(cls) -> Collection[str]:
        """As Properties says."""
        return names_of("spark")

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003
        """Spark itself takes no notice of names that it does not have."""
        return spark_fault(name)


_BY_SPARK: Final = "Spark's Kafka source sets it itself"


class JavaKafkaSettings(Properties):
    """Java's Kafka client configuration, by its own names: `ssl.truststore.location`..."""

    owned: ClassVar[Mapping[str, str]] = {
        "auto.offset.reset": "set stream.starting_offsets",
        "key.deserializer": _BY_SPARK,
        "value.deserializer": _BY_SPARK,
        "enable.auto.commit": _BY_SPARK,
        "interceptor.classes": _BY_SPARK,
    }
    examples: ClassVar[Mapping[str, Scalar]] = {
        "ssl.truststore.location": "/etc/tailrace/kafka.p12",
        "ssl.truststore.type": "PKCS12",
    }

    @classmethod
    def known(cls) -> Collection[str]:
        """As Properties says."""
        return names_of("java_consumer")

    @classmethod
    def fault(cls, name: str, value: Scalar, configured: Collection[str]) -> str | None:  # noqa: ARG003
        """Java's client takes no notice of names that it does not have."""
        return java_consumer_fault(name, configured)
