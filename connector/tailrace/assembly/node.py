"""The node beside the agent: its own settings, whether cdc_raw is its own, and its names for people."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tailrace.capture.owner import Ownership, own, this_agent
from tailrace.cluster import LiveCluster, LocalNode
from tailrace.errors import ForbiddenError
from tailrace.ops.health import HealthBoard
from tailrace.segments.files import list_segments
from tailrace_common.build import describe
from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError, SettingsError

_NAME: Final = "agent.cdc_raw_directory"
GRANT: Final = "GRANT SELECT ON KEYSPACE system_views TO the role of cluster.username (docs/security.md 2)"
# Cassandra does not store the flag of a table that is made or altered meanwhile (SchemaKeyspace).
ENABLE: Final = (
    "set cdc_enabled: true in cassandra.yaml and restart the node; then set cdc = true once more on tables where that "
    "was done while it was off"
)
_QUERY: Final = "SELECT name, value FROM system_views.settings"
_WITHOUT_TABLE: Final = "3."
_SECONDS: Final = 3.0
_AT_ONCE: Final = 32


def named_otherwise(directory: Path, node: Mapping[str, str]) -> str | None:
    """The node's own cdc_raw_directory where it has another name than `directory`; None where it says none."""
    node_directory = node.get("cdc_raw_directory")
    return (
        node_directory
        if node_directory is not None and os.path.realpath(node_directory) != os.path.realpath(directory)
        else None
    )


def has_segments(directory: Path) -> bool:
    """Whether it may be the node's under another name: that is never empty, Cassandra links the current segment."""
    return any(directory.glob("CommitLog-*.log"))


def require_own_directory(directory: Path, node: Mapping[str, str]) -> None:
    """Raise SettingsError for a directory that cannot be this node's cdc_raw, or not be read and released from.

    To be asked before the agent fences another one of its host: that may be the one with the right directory.
    """
    try:
        list_segments(directory)
    except OSError as error:
        raise SettingsError(
            f"{_NAME}: cannot list {directory}: {error.strerror}; set it to the node's cdc_raw_directory, "
            "with cdc_enabled: true in cassandra.yaml, and let this user read and write it"
        ) from None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise SettingsError(
            f"{_NAME}: this user may not read and write {directory}. Finished segments are deleted once they are "
            "published: run the agent as Cassandra's user, or in a group that may (docs/security.md)"
        )
    node_directory = named_otherwise(directory, node)
    if node_directory is not None and node.get("cdc_enabled") == "true" and not has_segments(directory):
        raise SettingsError(
            f"{_NAME}: {directory} has no segments, and the node's own is {node_directory}; set it to that"
        )


def own_directory(settings: Settings, host: str, *, take_over: bool, lost: Callable[[str], None]) -> Ownership:
    """Make agent.cdc_raw_directory this agent's; see capture.owner.own, also for what it raises."""
    owner = this_agent(
        settings.topics.prefix,
        host,
        str(settings.kafka.reveal().get("bootstrap.servers", "")),
        transactional=settings.agent.delivery == "exactly-once",
        now=time.time(),
    )
    return own(settings.agent.cdc_raw_directory, owner, take_over=take_over, lost=lost)


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


def reverse_name(address: str) -> str | None:
    """The name that DNS, or the machine's own table of hosts, has for an address."""
    try:
        name = socket.gethostbyaddr(address)[0]
    except OSError:
        return None
    return None if name == address else name


def node_names(
    addresses: Iterable[str], resolve: Callable[[str], str | None] = reverse_name, seconds: float = _SECONDS
) -> dict[str, str]:
    """Names by address, of those that are resolved within so many seconds."""
    pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="names")
    futures = {address: pool.submit(resolve, address) for address in set(addresses)}
    resolved, _ = wait(futures.values(), timeout=seconds)
    pool.shutdown(wait=False, cancel_futures=True)
    names = {address: future.result() for address, future in futures.items() if future in resolved}
    return {address: name for address, name in names.items() if name is not None}


def node_words(host: str, address: str | None, name: str | None = None) -> str:
    """A node for people: name, address and host id, as far as they are known."""
    label = name or address
    if label is None:
        return f"host id {host}"
    return f"{label} ({address}), host id {host}" if name else f"{label}, host id {host}"


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
