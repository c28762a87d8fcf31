"""The token ring of a cluster: which node holds which tokens, in one canonical order."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tailrace_schemas.errors import TailraceError
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

MAX_TOKENS: Final = 1 << 22
"""A stream id has 22 bits for the index of its vnode."""


class RingError(TailraceError):
    """A ring that cannot be: no tokens, one token twice, a token that is none. The message names nodes and token."""


@dataclass(frozen=True, slots=True)
class Node:
    """One member of the ring. `host` is the host id; `normal` is False while it joins, leaves or moves."""

    host: str
    datacenter: str
    tokens: tuple[int, ...]
    normal: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Ring:
    """All nodes that own tokens; kept sorted by host, their tokens ascending, so that equal rings are equal values.

    Whether a node is up, and what state it is in, is no part of that equality. Raises RingError when no token is left,
    a host or token stands there twice, or a token is outside the 64-bit range.
    """

    nodes: tuple[Node, ...]

    def __post_init__(self) -> None:
        ordered = sorted(self.nodes, key=lambda node: node.host)
        nodes = tuple(Node(n.host, n.datacenter, tuple(sorted(n.tokens)), n.normal) for n in ordered)
        object.__setattr__(self, "nodes", nodes)
        _check(nodes)

    @property
    def normal(self) -> bool:
        """Whether every node is NORMAL: only then may a generation be proposed (contracts.md 5)."""
        return all(node.normal for node in self.nodes)

    @property
    def tokens(self) -> tuple[int, ...]:
        """Every token, ascending: the ends of the vnodes, each of which reaches back to the token before it."""
        return tuple(sorted(token for node in self.nodes for token in node.tokens))

    def owner(self) -> dict[int, Node]:
        """Token -> the node that holds it."""
        return {token: node for node in self.nodes for token in node.tokens}


def ring_seed(ring: Ring, predecessor: int | None) -> int:
    """The seed of a generation's random bits: SHA-256(ring, predecessor's timestamp in milliseconds, None for none).

    Hashed as JSON without spaces, {"nodes": [[host, datacenter, [token, ...]], ...], "predecessor": ms | null}. So
    every proposer of one ring after one predecessor draws the same stream ids (contracts.md 5).
    """
    nodes = [[node.host, node.datacenter, list(node.tokens)] for node in ring.nodes]
    text = json.dumps({"nodes": nodes, "predecessor": predecessor}, separators=(",", ":"))
    return int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")


def _check(nodes: tuple[Node, ...]) -> None:
    hosts = Counter(node.host for node in nodes)
    for host in (host for host, count in hosts.items() if count > 1):
        raise RingError(f"host {host} stands in the ring twice")
    tokens = [token for node in nodes for token in node.tokens]
    if not tokens:
        raise RingError("the ring has no tokens: it needs at least one node that holds at least one")
    if len(tokens) > MAX_TOKENS:
        raise RingError(f"the ring has {len(tokens)} tokens; stream ids have room for {MAX_TOKENS}")
    for token in tokens:
        if not MIN_TOKEN <= token <= MAX_TOKEN:
            raise RingError(f"token {token} is outside the range of signed 64-bit integers")
    for token in (token for token, count in Counter(tokens).items() if count > 1):
        holders = " and ".join(node.host for node in nodes if token in node.tokens)
        raise RingError(f"token {token} is held more than once, by {holders}: a token has one owner")
