"""The ring, from rows as Cassandra's system tables have them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tailrace.cluster import ring_of
from tailrace_schemas.ring import Node, Ring, RingError

A, B = (UUID(int=number) for number in (1, 2))
OWNERS = [
    {"host_id": A, "data_center": "dc1", "tokens": {"5", "-9"}},
    {"host_id": B, "data_center": "dc2", "tokens": {"7"}},
]


def said(host: UUID | None, status: str | None, *, old: str | None = None, dc: str | None = "dc1") -> dict[str, Any]:
    """A row of gossip_info."""
    host_id = None if host is None else str(host)
    return {"host_id": host_id, "dc": dc, "status_with_port": status, "status": old}


@pytest.mark.parametrize(
    ("status", "normal"),
    [
        ("NORMAL,7", True),
        ("shutdown,true", True),
        ("", True),
        (None, True),
        ("LEAVING,7", False),
        ("LEFT,7,1795275388000", False),
        ("MOVING,8", False),
        ("removing,00000000-0000-0000-0000-000000000002", False),
        ("removed,00000000-0000-0000-0000-000000000002,1795275388000", False),
        ("hibernate,true", False),
        ("BOOT,7", False),
        ("BOOT_REPLACE,127.0.0.2:7000", False),
        ("SOMETHING NEW", False),
    ],
)
def test_a_node_that_owns_tokens(status: str | None, normal: bool) -> None:
    for row in (said(B, status), said(B, None, old=status)):
        ring = ring_of(OWNERS, [said(A, "NORMAL,5"), row])
        assert ring == Ring((Node(str(A), "dc1", (-9, 5)), Node(str(B), "dc2", (7,))))
        assert [node.normal for node in ring.nodes] == [True, normal]
        assert ring.normal is normal


@pytest.mark.parametrize(
    ("status", "coming"),
    [
        ("BOOT,9", True),
        ("BOOT_REPLACE,127.0.0.2:7000", True),
        ("NORMAL,9", True),
        ("LEFT,9,1795275388000", False),
        ("removed,00000000-0000-0000-0000-000000000003,1795275388000", False),
        ("hibernate,true", False),
        ("shutdown,true", False),
        (None, False),
    ],
)
def test_a_node_without_tokens(status: str | None, coming: bool) -> None:
    """Known to gossip alone, or to peers_v2 without tokens yet."""
    stranger = UUID(int=3)
    empty = {"host_id": stranger, "data_center": "dc1", "tokens": None}
    for owners in (OWNERS, [*OWNERS, empty]):
        ring = ring_of(owners, [said(A, "NORMAL,5"), said(B, "NORMAL,7"), said(stranger, status, dc=None)])
        assert ring.normal is not coming
        assert ring.tokens == (-9, 5, 7)
        assert [node.host for node in ring.nodes if not node.normal] == [str(stranger)] * coming


def test_the_port_s_status_counts_where_both_are_there() -> None:
    assert not ring_of(OWNERS, [said(B, "LEAVING,7", old="NORMAL,7")]).normal


def test_a_cassandra_that_tells_no_status() -> None:
    """4.0, and rows that cannot be named yet."""
    nameless = {"host_id": None, "data_center": None, "tokens": None}
    assert ring_of([*OWNERS, nameless], [said(None, "BOOT,9")]).normal
    with pytest.raises(RingError, match="no tokens"):
        ring_of([nameless], [said(A, "BOOT,5")])
