"""The settings of the mirror to the thread that keeps it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tailrace.cluster import LiveCluster
from tailrace.ops.health import HealthBoard
from tailrace.topology.mirror import Mirror, MirrorThread
from tailrace.topology.mirror_plan import MirrorOptions
from tailrace.topology.mirror_store import CqlStore
from tailrace.topology.mirror_tables import IdForm
from tailrace_common.settings import Settings
from tailrace_common.topics.generations import GenerationReader
from tailrace_schemas.topics import Internal, internal_topic

_DAY_MS: Final = 86_400_000


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
