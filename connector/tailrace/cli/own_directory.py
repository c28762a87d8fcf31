"""Whether agent.cdc_raw_directory can be read and is the node's own, as far as the node and the files tell."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tailrace.capture.directory import list_segments
from tailrace.cluster import LiveCluster
from tailrace_schemas.errors import FencedError, ServiceError, SettingsError

_NAME: Final = "agent.cdc_raw_directory"


def node_settings(cluster: LiveCluster) -> Mapping[str, str]:
    """The node's own settings; empty where it has no such table (3.11) or may not be asked."""
    try:
        return {row["name"]: row["value"] for row in cluster.execute("SELECT name, value FROM system_views.settings")}
    except ServiceError:
        return {}


def named_otherwise(directory: Path, node: Mapping[str, str]) -> str | None:
    """The node's own cdc_raw_directory where it has another name than `directory`; None where it says none."""
    theirs = node.get("cdc_raw_directory")
    return theirs if theirs is not None and os.path.realpath(theirs) != os.path.realpath(directory) else None


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
            f"{_NAME}: this user may not read and write {directory}; run the agent as Cassandra's user, or "
            "in a group that may (docs/security.md): finished segments are deleted once they are published"
        )
    theirs = named_otherwise(directory, node)
    if theirs is not None and node.get("cdc_enabled") == "true" and not has_segments(directory):
        raise SettingsError(f"{_NAME}: {directory} has no segments, and the node's own is {theirs}; set it to that")


@contextmanager
def sole_reader(directory: Path) -> Iterator[None]:
    """Lock the directory against other agents of this machine: without transactions Kafka fences none of them.

    The lock ends with the process, however that ends. Raises FencedError where another holds it.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FencedError(
                f"another agent reads {directory}: stop it first. With agent.delivery = at-least-once the one that "
                "runs stays"
            ) from None
        yield
    finally:
        os.close(descriptor)
