"""Whose agent it is, in the words of its status."""

from __future__ import annotations

from tailrace.cluster import LocalNode
from tailrace.ops.health import HealthBoard
from tailrace_common.build import describe
from tailrace_common.settings import Settings


def introduce(health: HealthBoard, settings: Settings, node: LocalNode) -> None:
    """Put the node, its cluster, the topics' prefix and our version into the agent's health."""
    health.about(
        node=f"{settings.cluster.contact_points[0]} in {node.datacenter}, host id {node.host}",
        cluster=f"{settings.cluster.name or node.cluster}, Cassandra {node.release}",
        prefix=settings.topics.prefix,
        version=describe(),
    )
