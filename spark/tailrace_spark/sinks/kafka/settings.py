"""The settings of a sink that writes changes into topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from tailrace_common.properties.passthrough import LibrdkafkaSettings, RegistrySettings, Scalar
from tailrace_common.sections.section import Positive
from tailrace_common.sections.sink import Dataset, SourceTable, TransactionsSection, first_server
from tailrace_common.sections.template import filled_for_table, fit, key_columns, require_route
from tailrace_schemas.topics import MAX_NAME, topic_component

_MIB: Final = 1 << 20
STATIC: Final = ".static"
"""Behind the name of a table's topic: that of Debezium's events of its static rows, whose key is the partition key."""


def longest_topic(*, debezium: bool) -> int:
    """How many characters the name of a table's topic may have, so that what stands behind it fits too."""
    return MAX_NAME - len(STATIC) if debezium else MAX_NAME


class SinkKafkaSettings(LibrdkafkaSettings):
    """The Kafka that the sink writes to, by librdkafka's names; with nothing set, the stream's own, of [kafka]."""

    owned: ClassVar[Mapping[str, str]] = {
        "transactional.id": "it is <topics.prefix>.sink.<the sink's name>, and fences a second stream of that name",
        "enable.idempotence": "the producer is always idempotent",
        "transaction.timeout.ms": "set the sink's transaction_timeout_seconds",
    }
    examples: ClassVar[Mapping[str, Scalar]] = {"bootstrap.servers": "other-kafka:9092"}


class KafkaSinkSettings(TransactionsSection):
    """Changes into topics of a Kafka cluster, each once."""

    type: Literal["kafka"] = Field(default="kafka", description="What kind of sink this is")
    topic: str = Field(
        default="changes.{keyspace}.{table}",
        description="Topic of a table's changes; not below [topics] prefix in the same Kafka, where they would be read "
        "again. Besides {prefix}, {keyspace} and {table} it may have columns of the partition key, as {key.country}",
    )
    most_topics: Positive = Field(
        default=100,
        description="Most topics that values of keys make; changes that would make more become dead letters",
    )
    partitions: Positive = Field(
        default=12,
        description="Partitions of topics that the sink makes. A change goes to the one with the number of that which "
        "it came from, modulo the topic's partitions",
    )
    key: Literal["partition", "primary"] = Field(
        default="partition", description='Kafka\'s key of a change, as JSON: its "partition" key or "primary" key'
    )
    format: Literal["change", "debezium"] = Field(
        default="change",
        description='"change": each change as it was written; "debezium": each row that it changed as an event of '
        "Debezium's, by the row's primary key. Needs `images`",
    )
    encoding: Literal["json", "avro"] = Field(
        default="json",
        description='"json"; Debezium\'s in the form of Kafka Connect with schemas. "avro": under the ids of '
        "`registry`, as Confluent's clients read it. On the agents' own topics those fail, but with [schemas] store "
        '"registry"',
    )
    tombstones: bool = Field(
        default=True, description="A record without a value behind each of Debezium's deletions, for compacted topics"
    )
    cloudevents: Literal["none", "structured", "binary"] = Field(
        default="none",
        description='Each change as an event of CloudEvents 1.0: "structured": in its JSON; "binary": its attributes '
        "as headers",
    )
    largest_record: Annotated[int, Field(ge=1024)] = Field(
        default=_MIB - 1024, description="Changes of more bytes become dead letters; the topic's max.message.bytes"
    )
    transaction_timeout_seconds: Annotated[int, Field(ge=1, le=900)] = Field(
        default=60, description="A transaction has a share of a micro-batch, and may take so long"
    )
    kafka: SinkKafkaSettings = Field(
        default_factory=lambda: SinkKafkaSettings.model_validate({}),
        description="The Kafka to write to, where it is another than the stream's",
    )

    register_schemas: bool = Field(
        default=True,
        description="Register schemas that the registry lacks. false: somebody else does, and until then changes that "
        "need them are dead letters",
    )
    registry: RegistrySettings = Field(
        default=RegistrySettings({}),
        description='The registry of encoding = "avro", by the names of confluent-kafka\'s SchemaRegistryClient. Needs '
        "tailrace[registry]",
    )

    @field_validator("topic")
    @classmethod
    def _check_topic(cls, value: str) -> str:
        return require_route(value, "prefix", "keyspace", "table")

    @model_validator(mode="after")
    def _check_format(self) -> Self:
        if self.format == "debezium" and self.images is None:
            raise ValueError('format = "debezium" needs images, the database that keeps what they are made from')
        if self.format == "debezium" and self.cloudevents != "none":
            raise ValueError('cloudevents is for format = "change"')
        if self.transactions and (self.format, self.encoding) != ("change", "json"):
            raise ValueError('transactions are for format = "change" with encoding = "json"')
        if self.format == "debezium" and key_columns(self.topic):
            raise ValueError('format = "debezium" has a topic for each table: topic may name no columns of a key')
        if self.encoding == "avro":
            self._check_avro()
        return self

    def _check_avro(self) -> None:
        if "url" not in self.registry.root:
            raise ValueError('encoding = "avro" needs registry.url')
        if self.cloudevents == "structured":
            raise ValueError('cloudevents = "structured" is JSON: with encoding = "avro" it may be "binary"')
        if self.format == "change" and self.images is not None:
            raise ValueError('encoding = "avro" has images with format = "debezium" alone')

    @property
    def location(self) -> str:
        """Where it writes, for people."""
        servers = self.kafka.root.get("bootstrap.servers", "the stream's Kafka")
        return f"{servers}, topics {self.topic}"

    @property
    def routed_by(self) -> Mapping[str, tuple[str, ...]]:
        """As SinkSettings says."""
        return {"topic": key_columns(self.topic)}

    def dataset(self, table: SourceTable) -> Dataset:
        """The topic; where values of the partition key choose it, the template of them all."""
        names = {"keyspace": topic_component(table.keyspace), "table": topic_component(table.name)}
        name = filled_for_table(self.topic, prefix=table.prefix, **names)
        name = name if key_columns(self.topic) else fit(name, longest_topic(debezium=self.format == "debezium"))
        return Dataset(f"kafka://{first_server(self.kafka.root.get('bootstrap.servers', table.kafka))}", name)
