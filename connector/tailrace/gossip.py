"""The ring as a node tells it: the rows of its system tables, and what gossip says of each member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tailrace_schemas.ring import Node, Ring

# What gossip says of a node, the words before the comma (VersionedValue). A member that was shut down, or is known only
# from before this node's restart (no word), keeps its tokens: nodetool status calls it DN, down and normal.
_NORMAL: Final = frozenset({"NORMAL", "shutdown", ""})
# Those of nodes that will own tokens, or own some that this node has not noted yet. Others without tokens have left
# (LEFT, removed), or coordinate only (hibernate).
_COMING: Final = frozenset({"BOOT", "BOOT_REPLACE", "NORMAL"})


def ring_of(owners: Iterable[Mapping[str, Any]], gossip: Iterable[Mapping[str, Any]] = ()) -> Ring:
    """The ring of the rows of system.local and system.peers_v2, and of system_views.gossip_info where it exists.

    A node that is only about to own tokens has a row in gossip alone; it stands in the ring without any. Raises
    RingError when nobody owns tokens.
    """
    states = {row["host_id"]: row for row in gossip if row["host_id"] is not None}
    owning = [row for row in owners if row["host_id"] is not None and row["tokens"]]
    nodes = {str(row["host_id"]): _node(row, states.get(str(row["host_id"]))) for row in owning}
    for host, state in states.items():
        if host not in nodes and _status(state) in _COMING:
            nodes[host] = Node(host, state["dc"] or "", (), normal=False)
    return Ring(tuple(nodes.values()))


def _node(row: Mapping[str, Any], state: Mapping[str, Any] | None) -> Node:
    tokens = tuple(int(text) for text in row["tokens"])
    return Node(str(row["host_id"]), row["data_center"], tokens, state is None or _status(state) in _NORMAL)


def _status(state: Mapping[str, Any]) -> str:
    """The first word of what gossip says of a node; 4.0 and later write it with ports and, for older ones, without."""
    return str(state["status_with_port"] or state["status"] or "").partition(",")[0]
