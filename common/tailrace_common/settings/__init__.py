"""The settings: one model, filled from a TOML file and then from TAILRACE_... environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from tailrace_common.properties.passthrough import (
    JavaKafkaSettings,
    KafkaSettings,
    RegistrySettings,
    Scalar,
    SparkSettings,
)
from tailrace_common.sections.agent import CdcRawSettings, GenerationSettings, MirrorSettings
from tailrace_common.sections.cassandra import CassandraSettings
from tailrace_common.sections.section import ListenAddress, PortOrNone, Positive, Seconds, Section
from tailrace_common.sections.server import ServerSettings
from tailrace_common.sections.sink import SinkSettings
from tailrace_common.sections.stream import LineageSettings, SnapshotLimits, StreamSettings, TracesSettings
from tailrace_common.selection import Selection
from tailrace_common.settings.sinks import DEFAULT_TYPE, SINK_TYPES, AnySinkSettings
from tailrace_common.settings.sources import load_into, read_into
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.forms import ValueForms
from tailrace_schemas.topics import INTERNAL_TOPICS, PREFIX, PREFIX_RULE, Internal, TopicPlan, internal_topic

HEALTH_PORT: Final = 8083
_PATTERN: Final = re.compile(r"[^.\s]+\.[^.\s]+")
_DATACENTERS: Final = re.compile(r"dc:[^,\s]+(,[^,\s]+)*")


class ClusterSettings(CassandraSettings):
    """The Cassandra cluster, as the agent reaches it for schema and ring. Its own node is the first contact point."""

    name: str | None = Field(
        default=None,
        examples=["production"],
        description="Name of the cluster in our topics. Unset: the cluster_name that Cassandra says",
    )


class AgentSettings(CdcRawSettings):
    """The agent beside each node."""

    segment_key: SecretStr | None = Field(
        default=None, examples=["..."], description="AES key of encrypted segments, as hexadecimal digits"
    )
    segment_key_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/segment-key"],
        description="File that holds it, instead of `segment_key`",
    )
    keystore: Path | None = Field(
        default=None,
        examples=["/etc/cassandra/.keystore"],
        description="JCEKS or PKCS12 keystore with the keys of encrypted segments, as cassandra.yaml's "
        "transparent_data_encryption_options name it",
    )
    keystore_password: SecretStr | None = Field(default=None, examples=["..."], description="The keystore's password")
    keystore_password_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/keystore-password"],
        description="File that holds it, instead of `keystore_password`",
    )
    keystore_key_password: SecretStr | None = Field(
        default=None, examples=["..."], description="Password of the keys in it. Unset: the keystore's"
    )
    keystore_key_password_file: Path | None = Field(
        default=None,
        examples=["/run/secrets/keystore-key-password"],
        description="File that holds it, instead of `keystore_key_password`",
    )
    poll_seconds: Seconds = Field(
        default=1.0, description="How often cdc_raw is listed, to catch what file notification missed"
    )
    publish: str = Field(
        default="all",
        description='Who publishes: "all" agents, so that each replica\'s copy arrives, or "dc:NAME,..." only theirs',
    )
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description='"exactly-once", by Kafka transactions; "at-least-once", without them: a crash repeats changes',
    )
    transaction_changes: Positive = Field(default=64, description="A transaction is committed at this many changes")
    transaction_milliseconds: Positive = Field(default=20, description="or at this age, whichever comes first")
    transaction_timeout_seconds: Annotated[int, Field(ge=2, le=900)] = Field(
        default=10,
        description="Kafka aborts an agent's transaction after this; a dead agent delays readers by that + 10 s",
    )
    longest_transaction_seconds: Annotated[int, Field(ge=2, le=900)] = Field(
        default=600,
        description="The same of one large mutation that a slow Kafka does not take in that time; at most the brokers' "
        "transaction.max.timeout.ms",
    )
    buffer_mebibytes: Annotated[int, Field(ge=1, le=2047)] = Field(
        default=32, description="Most memory for what Kafka has not acknowledged; at least topics.max_message_bytes"
    )
    progress_seconds: Seconds = Field(default=10, description="The least time between two progress records of a host")
    park_seconds: Seconds = Field(
        default=3600, description="Seconds until a parked mutation is reported as a dead letter; it stays parked"
    )
    dead_letter_payloads: bool = Field(
        default=False, description="Put such a mutation's bytes into dead letters too. They may be anybody's"
    )
    health_address: ListenAddress = Field(
        default="127.0.0.1", description="Host name or IP address that the health endpoint listens on"
    )
    health_port: PortOrNone = Field(
        default=HEALTH_PORT,
        description="Its port; 0: no endpoint. Where the default is taken, the agent runs without one, and says so",
    )

    @field_validator("publish")
    @classmethod
    def _check_publish(cls, value: str) -> str:
        if value != "all" and not _DATACENTERS.fullmatch(value):
            raise ValueError('must be "all" or "dc:NAME,NAME"')
        return value

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.segment_key is not None and self.keystore is not None:
            raise ValueError("segment_key and keystore are both given: keep one")
        if self.keystore is not None and self.keystore_password is None:
            raise ValueError("keystore needs keystore_password or keystore_password_file")
        if self.keystore is None and (self.keystore_password is not None or self.keystore_key_password is not None):
            raise ValueError("keystore_password needs keystore")
        return self

    def publishes(self, datacenter: str) -> bool:
        """Whether an agent in this datacenter publishes."""
        return self.publish == "all" or datacenter in self.publish.removeprefix("dc:").split(",")


class TopicSettings(Section):
    """The topics of this cluster's changes."""

    prefix: str = Field(default="tailrace", description="First part of every topic's name; one per Cassandra cluster")
    create: bool = Field(default=True, description="Create topics that are missing. false: their owner makes them")
    partitions: Positive = Field(
        default=12,
        description="Partitions of a table's topic that is made: as many tasks of Spark can write at once. It cannot "
        "be less later, and more takes care: docs/spark.md",
    )
    key: Literal["partition", "primary"] = Field(
        default="partition",
        description='Kafka\'s key of a change: the "partition" key, or the full "primary" key. Partitions of topics '
        "are chosen by the token either way",
    )
    replication_factor: Positive | None = Field(
        default=None, examples=[3], description="Copies of each partition. Unset: 3, or the number of brokers if fewer"
    )
    min_insync_replicas: Positive | None = Field(
        default=None,
        examples=[2],
        description="Copies that must have a record for it to count. Unset: one less, at least 1",
    )
    max_message_bytes: Positive = Field(
        default=16 * 1024 * 1024, description="Largest record; as large as Cassandra's max_mutation_size"
    )

    @field_validator("prefix")
    @classmethod
    def _check_prefix(cls, value: str) -> str:
        if not PREFIX.fullmatch(value):
            raise ValueError(PREFIX_RULE)
        return value

    def internal_plan(self, internal: Internal) -> TopicPlan:
        """The plan of an internal topic."""
        partitions, config = INTERNAL_TOPICS[internal]
        if internal is not Internal.GENERATIONS:  # its descriptions are cut into small records
            config = {**config, "max.message.bytes": str(self.max_message_bytes)}
        return self._plan(internal_topic(self.prefix, internal), partitions, config)

    def table_plan(self, topic: str) -> TopicPlan:
        """The plan of a table's topic, by its name from `table_topic`.

        Never compacted: that keeps the last change of a key only, and a change is not the whole row.
        """
        config = {"cleanup.policy": "delete", "max.message.bytes": str(self.max_message_bytes)}
        return self._plan(topic, self.partitions, config)

    def _plan(self, name: str, partitions: int, config: Mapping[str, str]) -> TopicPlan:
        return TopicPlan(
            name=name,
            partitions=partitions,
            config=MappingProxyType({**config}),
            replication_factor=self.replication_factor,
            min_insync_replicas=self.min_insync_replicas,
        )


class AvroSettings(Section):
    """The forms of values in changes and their keys, of which our readers take all, mixed too."""

    timestamps: Literal["plain", "logical"] = Field(
        default="plain",
        description='timestamp and date: "plain" long and int, or "logical", timestamp-millis and date of Avro. Values '
        "outside of the years 1 to 9999 are then null, and their bytes stand in `raw`",
    )
    uuids: Literal["string", "fixed"] = Field(
        default="string", description='uuid and timeuuid: text as a "string", or "fixed", their 16 bytes'
    )
    decimals: Literal["string", "bytes"] = Field(
        default="string",
        description='decimal and varint: text as a "string", or "bytes" of two\'s complement, which a decimal has in a '
        "record beside its scale",
    )

    def forms(self) -> ValueForms:
        """These settings, for those who write Avro."""
        return ValueForms(self.timestamps, self.uuids, self.decimals)


class SchemaSettings(Section):
    """What names the schemas of messages. Readers find everything in the topic of schemas either way."""

    store: Literal["topic", "registry"] = Field(
        default="topic",
        description='"topic": our own topic alone; "registry": a registry too, and its ids in Confluent\'s format, '
        "which stock deserializers of Confluent's need",
    )
    subjects: Literal["TopicName", "RecordName", "TopicRecordName"] = Field(
        default="TopicName", description="Subject name strategy, as Confluent's clients call it"
    )
    register_schemas: bool = Field(
        default=True,
        description="Register schemas that the registry lacks. false: somebody else does, and their changes are held",
    )
    registry: RegistrySettings = Field(
        default=RegistrySettings({}),
        description="The registry, by the names of confluent-kafka's SchemaRegistryClient. Needs tailrace[registry]",
    )

    @model_validator(mode="after")
    def _check_registry(self) -> Self:
        if self.store == "registry" and "url" not in self.registry.root:
            raise ValueError('store = "registry" needs schemas.registry.url')
        return self


class TableSettings(Section):
    """Which tables are published, of those with cdc = true."""

    include: tuple[str, ...] = Field(default=("*.*",), description='Patterns of "keyspace.table" with * and ?')
    exclude: tuple[str, ...] = Field(default=(), description="Patterns that win over `include`")
    release_unselected: bool = Field(
        default=False,
        description="What becomes of changes while tables have cdc = true and the patterns select none of them. false: "
        "they are parked, and their segments kept, as a pattern is most likely wrong; true: they are given up",
    )

    @property
    def selection(self) -> Selection:
        """What they select."""
        return Selection(self.include, self.exclude)

    @field_validator("include", "exclude")
    @classmethod
    def _check_patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            if not _PATTERN.fullmatch(pattern):
                raise ValueError(f'pattern "{pattern}" must have the form keyspace.table, such as shop.* or *.orders')
        return value


class Settings(BaseModel):
    """Everything that can be set. `Settings()` is the defaults; `load_settings` reads file and environment."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True)

    cluster: ClusterSettings = Field(default=ClusterSettings(), description=ClusterSettings.__doc__)
    agent: AgentSettings = Field(default=AgentSettings(), description=AgentSettings.__doc__)
    kafka: KafkaSettings = Field(default=KafkaSettings({}), description=KafkaSettings.__doc__)
    topics: TopicSettings = Field(default=TopicSettings(), description=TopicSettings.__doc__)
    avro: AvroSettings = Field(default=AvroSettings(), description=AvroSettings.__doc__)
    schemas: SchemaSettings = Field(default=SchemaSettings(), description=SchemaSettings.__doc__)
    tables: TableSettings = Field(default=TableSettings(), description=TableSettings.__doc__)
    generations: GenerationSettings = Field(default=GenerationSettings(), description=GenerationSettings.__doc__)
    mirror: MirrorSettings = Field(default=MirrorSettings(), description=MirrorSettings.__doc__)
    stream: StreamSettings = Field(default=StreamSettings(), description=StreamSettings.__doc__)
    server: ServerSettings = Field(default=ServerSettings(), description=ServerSettings.__doc__)
    snapshot: SnapshotLimits = Field(default=SnapshotLimits(), description=SnapshotLimits.__doc__)
    lineage: LineageSettings = Field(default=LineageSettings(), description=LineageSettings.__doc__)
    traces: TracesSettings = Field(default=TracesSettings(), description=TracesSettings.__doc__)
    sink: dict[str, AnySinkSettings] = Field(
        default={"local": SINK_TYPES[DEFAULT_TYPE].model_validate({})} if DEFAULT_TYPE in SINK_TYPES else {},
        description="Where streams write, by name.",
    )

    @model_validator(mode="after")
    def _check_buffer(self) -> Self:
        if self.agent.buffer_mebibytes << 20 < self.topics.max_message_bytes:
            raise ValueError("agent.buffer_mebibytes must be as large as topics.max_message_bytes at least")
        return self

    @model_validator(mode="after")
    def _check_sink(self) -> Self:
        if self.stream.sink is not None and self.stream.sink not in self.sink:
            raise ValueError(f'stream.sink = "{self.stream.sink}" has no [sink.{self.stream.sink}]; {self._sinks()}')
        return self

    def _sinks(self) -> str:
        return f"the sinks are: {', '.join(sorted(self.sink))}" if self.sink else "no sink is set"

    def stream_sink(self) -> tuple[str, SinkSettings]:
        """Name and settings of the sink that `tailrace stream` writes. Raises ValueError when none is chosen."""
        if self.stream.sink is not None:
            return self.stream.sink, self.sink[self.stream.sink]
        if len(self.sink) != 1:
            raise ValueError(f"set stream.sink: {self._sinks()}")
        return next(iter(self.sink.items()))

    def with_stream(self, **changes: object) -> Settings:
        """These settings with some of [stream] changed, which are not checked."""
        return self.model_copy(update={"stream": self.stream.model_copy(update=changes)})

    def with_sink(self, name: str) -> Settings:
        """These settings with that sink alone. Raises SettingsError where there is no such sink."""
        if name not in self.sink:
            raise SettingsError(f"--sink {name}: there is no [sink.{name}]; {self._sinks()}")
        return self.with_stream(sink=name).model_copy(update={"sink": {name: self.sink[name]}})


def load_settings(path: str | Path | None, environ: Mapping[str, str]) -> Settings:
    """The settings of `path` (None: no file), overridden by the TAILRACE_SECTION__NAME variables of `environ`.

    Raises SettingsError with a line for each fault: its place, the setting's name, and its valid values. For an unknown
    name it has the nearest known one. Values of secrets are never part of it.
    """
    return load_into(Settings, None if path is None else Path(path), environ)


def settings_from(tree: Mapping[str, object], source: str) -> Settings:
    """The settings of a tree of sections, which `source` names for errors. Raises SettingsError as `load_settings`."""
    return read_into(Settings, tree, source)


__all__ = [
    "AgentSettings",
    "JavaKafkaSettings",
    "KafkaSettings",
    "RegistrySettings",
    "Scalar",
    "Settings",
    "SinkSettings",
    "SparkSettings",
    "load_settings",
    "settings_from",
]
