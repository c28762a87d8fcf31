"""The section of a sink that publishes to RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from tailrace_common.secrets import carries_user, origin
from tailrace_common.sections.section import Positive, Seconds
from tailrace_common.sections.sink import Dataset, ImagesSection, SourceTable
from tailrace_common.sections.template import fit, key_columns, require_route, require_template

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
LONGEST_NAME: Final = 255
"""Bytes of the name of an exchange or a queue, and of a routing key: a short string of AMQP 0-9-1."""


class RabbitmqSinkSettings(ImagesSection):
    """Changes as messages of RabbitMQ, each confirmed: docs/sinks/rabbitmq.md."""

    by_subscription: ClassVar[frozenset[str]] = frozenset({"in_flight"})
    type: Literal["rabbitmq"] = Field(default="rabbitmq", description="What kind of sink this is")
    url: str = Field(
        examples=["amqps://rabbit.example.org"],
        description="amqp://host:5672 or amqps://host:5671, without user, password and virtual host",
    )
    username: str = Field(default="guest", description="User of RabbitMQ")
    password: SecretStr | None = Field(
        default=None, examples=["..."], description="Password. Unset: guest, which RabbitMQ takes on its own host only"
    )
    password_file: Path | None = Field(
        default=None, examples=["/run/secrets/rabbitmq"], description="File that holds it, instead of `password`"
    )
    vhost: str = Field(default="/", description="Virtual host")
    tls_ca_file: Path | None = Field(
        default=None,
        examples=["/etc/tailrace/rabbitmq-ca.pem"],
        description="PEM file of the authorities to trust, with amqps. Unset: the system's",
    )
    exchange: str = Field(default="tailrace.changes", description="Exchange of the changes")
    routing_key: str | None = Field(
        default=None,
        examples=["{keyspace}.{table}.{key.country}"],
        description="Routing key of a change, with {keyspace}, {table} and columns of the partition key. "
        "Needs declare = false: an exchange of yours, of any type, to which alone changes go. "
        "Unset: the partition key as JSON",
    )
    queue: str = Field(
        default="{exchange}.{number}", description="Names of the queues behind it; {number} counts from 0"
    )
    queues: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=4, description="How many; a key's changes are always in the same one"
    )
    queue_type: Literal["quorum", "classic"] = Field(
        default="quorum", description='"quorum": on several nodes; "classic": on one, durable'
    )
    declare: bool = Field(
        default=True,
        description="Make the exchange, of type x-consistent-hash, and its queues. false: they are yours, and only "
        "looked at",
    )
    in_flight: Annotated[int, Field(ge=1, le=65535)] = Field(
        default=1000, description="Most messages that are not confirmed yet"
    )
    largest_message: Annotated[int, Field(ge=1024)] = Field(
        default=16 << 20,
        description="Changes of more bytes become dead letters; at most RabbitMQ's max_message_size",
    )
    timeout_seconds: Seconds = Field(
        default=30, description="How long connecting, and waiting for the next confirmation, may take"
    )
    heartbeat_seconds: Positive = Field(default=60, description="A connection silent for so long is asked for life")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:  # its words have what was given
            raise ValueError("is no URL with a host and a port") from None
        if carries_user(value):
            raise ValueError("must be without user and password: give username and password_file")
        if parts.scheme not in _PORTS or not host:
            raise ValueError("must begin with amqp:// or amqps:// and a host")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("must end behind host and port: give vhost")
        return value

    @field_validator("queue")
    @classmethod
    def _check_queue(cls, value: str) -> str:
        return require_template(value, "exchange", "number", needed="number")

    @field_validator("routing_key")
    @classmethod
    def _check_routing_key(cls, value: str | None) -> str | None:
        return None if value is None else require_route(value, "keyspace", "table")

    @model_validator(mode="after")
    def _check_routing(self) -> Self:
        if self.routing_key is not None and self.declare:
            raise ValueError("routing_key needs declare = false: the exchange that is made for you hashes whole keys")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        if not self.exchange:
            raise ValueError("exchange must have a name")
        if len(self.exchange.encode()) > LONGEST_NAME:
            raise ValueError(f"exchange may have {LONGEST_NAME} bytes")
        if self.tls_ca_file is not None and not self.tls:
            raise ValueError("tls_ca_file needs a url that begins with amqps://")
        return self

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The queues, by number, each short enough for RabbitMQ."""
        names = (self.queue.format(exchange=self.exchange, number=index) for index in range(self.queues))
        return tuple(fit(name, LONGEST_NAME) for name in names)

    @property
    def tls(self) -> bool:
        """Whether the connection is encrypted."""
        return urlsplit(self.url).scheme == "amqps"

    @property
    def host(self) -> str:
        """The host's name or address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port, or the one of its scheme."""
        parts = urlsplit(self.url)
        return parts.port or _PORTS[parts.scheme]

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        return f"{origin(self.url)}, exchange {self.exchange}"

    @property
    def identity(self) -> str:
        """What tells one broker from another; not to be shown."""
        return f"{self.url.rstrip('/')}, exchange {self.exchange}"

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """As SinkSettings says."""
        return {"routing_key": key_columns(self.routing_key or "")}

    def dataset(self, table: SourceTable) -> Dataset:  # noqa: ARG002 - all tables go to one exchange
        """The exchange."""
        return Dataset(f"amqp://{self.host}:{self.port}", f"{'' if self.vhost == '/' else self.vhost}/{self.exchange}")
