"""Whether agent.cdc_raw_directory can be read and is the node's own, as far as the node and the files tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tailrace.capture.owner import Ownership, own, this_agent
from tailrace.segments.directory import list_segments
from tailrace_common.settings import Settings
from tailrace_schemas.errors import SettingsError

_NAME: Final = "agent.cdc_raw_directory"


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
