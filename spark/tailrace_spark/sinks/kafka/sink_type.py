"""The type `kafka`: changes into topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tailrace_common.properties.passthrough import Scalar
from tailrace_common.sections.template import KEY_COLUMN
from tailrace_schemas.errors import SettingsError
from tailrace_spark.sinks.kafka.settings import KafkaSinkSettings
from tailrace_spark.sinks.letters import LOGGED, Letters
from tailrace_spark.sinks.protocol import ReachableSink
from tailrace_spark.sinks.sink_type import Kind, SinkType, Surroundings

if TYPE_CHECKING:
    from tailrace_spark.sinks.kafka.avro import Registry
    from tailrace_spark.sinks.kafka.outlet import KafkaTarget
    from tailrace_spark.sinks.kafka.shares import WorkerKafkaOutlet


def _open(name: str, settings: KafkaSinkSettings, around: Surroundings) -> ReachableSink:
    from tailrace_spark.sinks.changelog.sink import ChangeLogSink
    from tailrace_spark.sinks.images.planning import images_for
    from tailrace_spark.sinks.kafka.outlet import KafkaOutlet, KafkaTarget
    from tailrace_spark.sinks.kafka.shares import KafkaShares

    own_kafka, prefix = settings.kafka.reveal(), around.prefix
    target = KafkaTarget(name=name, prefix=prefix, settings=settings)
    _require_apart(name, settings.topic, prefix, shared=not own_kafka)
    config = own_kafka or dict(around.kafka)
    outlet = KafkaOutlet(config, target, registry=_registry(target), letters=around.letters)
    images, made_of = images_for(name, settings, around)
    opener = KafkaOpener(config, target, around.letters)
    shares = KafkaShares(outlet, opener)
    return ChangeLogSink(outlet, images, shares, made_of, transactions=settings.transactions)


def _require_apart(name: str, topic: str, prefix: str, *, shared: bool) -> None:
    """Raise SettingsError where changes would go among the topics that a stream of this prefix reads or keeps.

    `shared`: they go to the source's own Kafka.
    """
    head, by_key, _ = topic.partition("{" + KEY_COLUMN)
    begins = head.format(prefix=prefix, keyspace="k", table="t")
    below = f"{prefix}."
    if by_key and below.startswith(begins):
        raise SettingsError(
            f"sink.{name}.topic: {topic} lets values of keys choose how a topic's name begins. That could be "
            f"{below}; put a name of your own in front"
        )
    if (shared or by_key) and begins.startswith(below):
        raise SettingsError(f"sink.{name}.topic: {topic} is below topics.prefix, and would be read again")


@dataclass(frozen=True, slots=True)
class KafkaOpener:
    """Makes the outlet of a worker process."""

    config: Mapping[str, Scalar] = field(repr=False)
    target: KafkaTarget
    letters: Letters = LOGGED

    def open(self) -> WorkerKafkaOutlet:
        """As Opener says."""
        from tailrace_spark.sinks.kafka.shares import WorkerKafkaOutlet

        registry = _registry(self.target)
        return WorkerKafkaOutlet(self.config, self.target, registry=registry, letters=self.letters)


def _registry(target: KafkaTarget) -> Registry | None:
    name, settings = target.name, target.settings
    if settings.encoding == "json":
        return None
    try:
        from tailrace_common.kafka.schema_registry import SchemaRegistry
    except ImportError as cause:
        words = f"sink.{name}: encoding = \"avro\" needs {cause.name}: pip install 'tailrace[registry]'"
        raise SettingsError(words) from None
    return SchemaRegistry(
        settings.registry.reveal(),
        register=settings.register_schemas,
        section=f"sink.{name}.registry",
        setting=f"sink.{name}.register_schemas",
    )


KAFKA: Final = SinkType(
    name="kafka",
    settings=KafkaSinkSettings,
    kinds=(Kind.CHANGE_LOG,),
    guarantee="Each change is in its topic exactly once for read_committed readers, in order per key.",
    extra="spark",
    packages=("confluent_kafka",),
    document="docs/sinks/kafka.md",
    open=_open,
    where="topic",
)
