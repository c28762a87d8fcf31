"""The node's own settings, and what health says where they cannot be read or leave the agent nothing to publish."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.assembly.own_directory import require_own_directory
from tailrace.cluster import LiveCluster
from tailrace.errors import ForbiddenError
from tailrace.ops.health import HealthBoard
from tailrace_schemas.errors import ServiceError

GRANT: Final = "GRANT SELECT ON KEYSPACE system_views TO the role of cluster.username (docs/security.md 2)"
# Cassandra does not store the flag of a table that is made or altered meanwhile (SchemaKeyspace).
ENABLE: Final = (
    "set cdc_enabled: true in cassandra.yaml and restart the node; then set cdc = true once more on tables where that "
    "was done while it was off"
)
_QUERY: Final = "SELECT name, value FROM system_views.settings"
_WITHOUT_TABLE: Final = "3."


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`values` by name. `refusal` is why the role may not read them, empty where it may.

    It is empty too where the node has no such table (`absent`, Cassandra 3.11), or did not answer just now.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""
    absent: bool = False

    @property
    def answered(self) -> bool:
        """Whether all that the node can say is known."""
        return bool(self.values) or self.absent

    @property
    def cdc_disabled(self) -> bool:
        """Whether the node says that it keeps no changes for agents."""
        return self.values.get("cdc_enabled") == "false"


def read_node_settings(cluster: LiveCluster, release: str) -> NodeSettings:
    """What the node of this release says now."""
    if release.startswith(_WITHOUT_TABLE):
        return NodeSettings(absent=True)
    try:
        return NodeSettings({row["name"]: row["value"] for row in cluster.execute(_QUERY)})
    except ForbiddenError as error:
        return NodeSettings(refusal=str(error))
    except ServiceError:
        return NodeSettings()


def tell_node_settings(health: HealthBoard, node: NodeSettings) -> str | None:
    """Say in health what keeps the agent from its work, and that it no longer does; the words where they are news."""
    if node.refusal:
        words = (
            "the node's settings cannot be read, so nobody knows whether cdc_enabled is true or cdc_raw nearly full: "
            f"{GRANT}. {node.refusal}"
        )
        return words if health.degrade("node settings", words, blocking=True) else None
    if not node.answered:
        return None
    health.recover("node settings")
    if not node.cdc_disabled:
        health.recover("cdc_enabled")
        return None
    words = f"cdc_enabled is false on this node: Cassandra keeps no changes, and what is written now is lost; {ENABLE}"
    return words if health.degrade("cdc_enabled", words, blocking=True) else None


def require_node_directory(directory: Path, node: NodeSettings) -> None:
    """As require_own_directory; ServiceError where the node has CDC off, and so no directory: that may change."""
    if node.cdc_disabled and not os.path.isdir(directory):
        raise ServiceError(f"cdc_enabled is false on this node, and there is no {directory}; {ENABLE}")
    require_own_directory(directory, node.values)
