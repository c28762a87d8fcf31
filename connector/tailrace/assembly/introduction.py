"""Whose agent it is, and which services it asks, in the words of its status."""

from __future__ import annotations

from tailrace.assembly.node_names import node_names, node_words
from tailrace.cluster import LocalNode
from tailrace.ops.health import HealthBoard
from tailrace_common.build import describe
from tailrace_common.settings import Settings


def introduce(health: HealthBoard, settings: Settings, node: LocalNode, address: str | None) -> str:
    """Put the node, its cluster, the topics' prefix and our version into the agent's health; the node's name.

    That is its address where DNS has none.

    `address`: the one at which the other nodes know it.
    """
    node_address = address or settings.cluster.contact_points[0]
    name = node_names([node_address]).get(node_address)
    health.about(
        node=f"{node_words(node.host, node_address, name)}, datacenter {node.datacenter}",
        cluster=f"{settings.cluster.name or node.cluster}, Cassandra {node.release}",
        prefix=settings.topics.prefix,
        version=describe(),
    )
    return name or node_address


def services_of(settings: Settings) -> tuple[str, str]:
    """Cassandra and Kafka by their addresses, and the settings that give these."""
    cluster, brokers = settings.cluster, settings.kafka.root.get("bootstrap.servers")
    return (
        f"Cassandra at {cluster.contact_points[0]}:{cluster.port} (cluster.contact_points, cluster.port)",
        f"Kafka at {brokers} (kafka.bootstrap.servers)",
    )
