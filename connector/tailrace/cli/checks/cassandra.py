"""`tailrace check` of Cassandra: whether the node answers, and what follows for settings, tables, ring and mirror."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from tailrace.assembly.node import node_names, node_words, read_node_settings
from tailrace.assembly.services import contact_of, mirror_of
from tailrace.cli.checks.mirror import check_mirror, needed_generations
from tailrace.cli.checks.node import check_node
from tailrace.cli.checks.tables import check_logged, check_masked, check_tables
from tailrace.cluster import LiveCluster, LocalNode
from tailrace.publish.kafka import KafkaTopics
from tailrace.schema.bypassing import read_bypassing
from tailrace_common.cli.checks import Check
from tailrace_common.column_masks import Rows
from tailrace_common.settings import Settings
from tailrace_common.topics.generations import GenerationReader
from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import RingError
from tailrace_schemas.topics import Internal, internal_topic

_EPOCHS: Final = (
    "each write names the epoch of its definition; DDL is read from the log, where the node tells of its epochs there "
    "(6.0-alpha2 does), else from this node, and then changes are marked schema_inferred, and /status says so"
)


def check_cassandra(settings: Settings) -> Iterator[Check]:
    """The node: it answers, computes tokens as we do, has CDC on, and tables that use it.

    What cannot be looked at is a row that fails, and hides no other one.
    """
    try:
        cluster = LiveCluster(contact_of(settings.cluster))
    except (ServiceError, SettingsError) as error:
        yield Check("cassandra", False, str(error), "see [cluster]; is the node up, and its native transport on?")
        return
    with closing(cluster):
        try:
            node = cluster.check()
        except (ServiceError, SettingsError) as error:
            yield Check("cassandra", False, str(error), "see [cluster]")
            return
        yield Check("cassandra", True, f"{node.release}, {node.cluster}, {node.datacenter}, {_named(cluster, node)}")
        for name, look in _parts(settings, cluster, node).items():
            try:
                yield from look()
            except (ServiceError, SettingsError, RingError) as error:
                yield Check(name, False, f"cannot be looked at: {error}", "docs/security.md 2 has the rights it takes")


def _named(cluster: LiveCluster, node: LocalNode) -> str:
    address = cluster.known_address(node.host)
    names = {} if address is None else node_names([address])
    return node_words(node.host, address, names.get(address or ""))


def _parts(settings: Settings, cluster: LiveCluster, node: LocalNode) -> dict[str, Callable[[], Iterator[Check]]]:
    """What to look at, by the name of the row that says where that fails."""
    return {
        "node settings": lambda: check_node(settings, read_node_settings(cluster, node.release)),
        "tables": lambda: check_tables(settings, cluster.definitions().tables),
        "tables logged": lambda: check_logged(
            settings, read_bypassing(cluster, cluster.definitions().tables, cluster.node_state())
        ),
        "masked columns": lambda: check_masked(settings, cluster.definitions().tables, _rows_of(cluster), node.release),
        "ring": lambda: _check_ring(cluster),
        "mirror": lambda: _check_mirror(settings, cluster),
        "metadata epochs": lambda: _check_epochs(cluster),
    }


def _rows_of(cluster: LiveCluster) -> Rows:
    return lambda statement: [tuple(row.values()) for row in cluster.execute(statement)]


def _check_ring(cluster: LiveCluster) -> Iterator[Check]:
    ring = cluster.ring()
    addresses = cluster.addresses()
    moving = sorted(node_words(node.host, addresses.get(node.host)) for node in ring.nodes if not node.normal)
    detail = f"{len(ring.nodes)} nodes, {len(ring.tokens)} tokens"
    advice = f"joining, leaving or moving: {'; '.join(moving)}. A generation is proposed once that is over"
    yield Check("ring", True, detail, advice if moving else "")


def _check_mirror(settings: Settings, cluster: LiveCluster) -> Iterator[Check]:
    mirror = mirror_of(settings, cluster)
    if mirror is None:
        return
    kafka, topic = settings.kafka.reveal(), internal_topic(settings.topics.prefix, Internal.GENERATIONS)
    topics, _ = KafkaTopics(kafka, settings.topics, create=False).survey()
    published: tuple[PublishedGeneration, ...] = ()
    if topic in topics:
        with GenerationReader.open(kafka, topic) as reader:
            published = reader.refresh()
    replication = cluster.node_state().keyspaces.get(mirror.store.keyspace, {}).get("replication")
    needed = needed_generations(published, mirror.options, time.time_ns() // 1_000_000)
    yield from check_mirror(settings.mirror, mirror.store, replication, cluster.ring(), needed)


def _check_epochs(cluster: LiveCluster) -> Iterator[Check]:
    epoch = cluster.node_state().metadata
    if epoch is not None:
        yield Check("metadata epochs", True, f"epoch {epoch}: {_EPOCHS}")
