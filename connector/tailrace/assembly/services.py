"""Single services of the settings: the cluster, Kafka's topics and producers, the registry, the router, the mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Final
from uuid import UUID

from tailrace.cluster import LiveCluster
from tailrace.ops.health import HealthBoard
from tailrace.publish.kafka import KafkaLog, KafkaTopics
from tailrace.publish.kafka.topics import SchemaDestinations, last_definitions, log_recreated
from tailrace.publish.routing import OwnIds, Router, SchemaStore
from tailrace.topology.keeper import EntrySettings
from tailrace.topology.mirror import CqlStore, Mirror, MirrorThread
from tailrace.topology.mirror_plan import IdForm, MirrorOptions
from tailrace_common.kafka import Pace, Sizes
from tailrace_common.settings import AgentSettings, SchemaSettings, Settings
from tailrace_common.topics import GenerationReader, SchemaReader
from tailrace_schemas.avro import SchemaEntry
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.table import Table
from tailrace_schemas.topics import Internal, internal_topic

if TYPE_CHECKING:
    from tailrace.publish.registry import RegistryStore

INTERNAL_TOPICS: Final = (
    Internal.OFFSETS,
    Internal.SCHEMAS,
    Internal.SCHEMA_HISTORY,
    Internal.SCHEMA_CHANGES,
    Internal.GENERATIONS,
    Internal.DEAD_LETTER,
    Internal.PROGRESS,
)
_DAY_MS: Final = 86_400_000


def poll_seconds_of(settings: AgentSettings) -> float:
    """How long to wait where nothing was found."""
    early = settings.early_milliseconds / 1000
    return min(early, settings.poll_seconds) if settings.early else settings.poll_seconds


def entries_of(settings: Settings) -> EntrySettings:
    """How the settings want entries made."""
    return EntrySettings(settings.generations.streams_per_entry, settings.generations.ignore_msb)


def topics_of(settings: Settings, recreated: Callable[[str, str], None] = log_recreated) -> KafkaTopics:
    """The topics of the settings; `recreated` is KafkaTopics'. Raises SettingsError."""
    return KafkaTopics(settings.kafka.reveal(), settings.topics, create=settings.topics.create, recreated=recreated)


def sizes_of(settings: Settings, topics: KafkaTopics) -> Sizes:
    """What bounds a producer, as the settings and the topics that are ensured say."""
    return Sizes(
        buffer=settings.agent.buffer_mebibytes << 20, largest=settings.topics.max_message_bytes, limits=topics.limits
    )


def pace_of(settings: Settings, rate: float | None = None) -> Pace:
    """What producers learn of Kafka's speed, within the limits of the settings; from this rate on, where one is given,
    in bytes a second."""
    agent = settings.agent
    return Pace(agent.transaction_timeout_seconds, agent.longest_transaction_seconds, time.monotonic, rate)


def open_router(
    settings: Settings,
    topics: KafkaTopics,
    wants: Callable[[Table], bool],
    stack: ExitStack,
    newest: Callable[[UUID], Table | None] | None = None,
) -> Router:
    """Topics, schemas known so far, and what publishes more of them; `stack` ends what has connections.

    `newest` is the Router's; without it, the last definitions that `.schemas` has at the start. So what is published
    once more under an older definition gives readers no old names. Raises ServiceError, SettingsError.
    """
    kafka, prefix = settings.kafka.reveal(), settings.topics.prefix
    log = KafkaLog(kafka, internal_topic(prefix, Internal.SCHEMAS), largest=settings.topics.max_message_bytes)
    log.open()
    topics.ensure_internal(INTERNAL_TOPICS)
    with SchemaReader(kafka, prefix) as reader:
        reader.refresh()
        store = stack.enter_context(closing(schema_store(settings.schemas, reader)))
        destinations = SchemaDestinations(prefix, topics, log, reader)
        newest = newest or last_definitions(reader).get
        return Router(
            prefix, destinations, wants, store, settings.topics.key, forms=settings.avro.forms(), newest=newest
        )


def schema_store(settings: SchemaSettings, announced: Mapping[bytes, SchemaEntry]) -> SchemaStore:
    """Who names schemas, as the settings say; `announced` is what `.schemas` has. Raises SettingsError."""
    return OwnIds() if settings.store == "topic" else registry_store(settings, announced)


def registry_store(settings: SchemaSettings, announced: Mapping[bytes, SchemaEntry]) -> RegistryStore:
    """The registry that the settings name. Raises SettingsError."""
    try:
        from tailrace.publish.registry import RegistryStore
    except ImportError as cause:
        raise SettingsError(f"schemas.store needs {cause.name}: pip install 'tailrace[registry]'") from None
    return RegistryStore(settings.registry.reveal(), settings.subjects, settings.register_schemas, announced)


@contextmanager
def mirroring(settings: Settings, cluster: LiveCluster, host: str, health: HealthBoard) -> Iterator[None]:
    """Keep the mirror that the settings ask for, if they do, as long as the context lasts; `host` is this node's id."""
    mirror = mirror_of(settings, cluster)
    if mirror is None:
        yield
        return
    kafka, topic = settings.kafka.reveal(), internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    thread = MirrorThread(
        mirror, host, lambda: GenerationReader.open(kafka, topic), health, lambda: time.time_ns() // 1_000_000
    )
    with thread:
        yield


def mirror_of(settings: Settings, cluster: LiveCluster) -> Mirror | None:
    """The mirror of the settings; None where they name no keyspace."""
    mirror, days = settings.mirror, settings.generations.retention_days
    if mirror.keyspace is None:
        return None
    keep_ms = None if days is None else round(days * _DAY_MS)
    return Mirror(
        CqlStore(cluster, mirror.keyspace),
        MirrorOptions(v1=mirror.v1, keep_ms=keep_ms),
        form=None if mirror.stream_ids is None else IdForm(mirror.stream_ids),
        create=mirror.create,
        replication=mirror.replication,
    )
