"""What is proposed for a ring, and from when on it is to operate."""

from __future__ import annotations

from uuid import UUID

import pytest

from tailrace.topology.keeper import EntrySettings, operating_from, propose
from tailrace_schemas.generation_records import encode_proposal
from tailrace_schemas.ring import Node, Ring, RingError

NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (1, 5)), Node("b", "dc1", (3,))))
ONE, TWO = UUID(int=1), UUID(int=2)

TIMES = [
    # predecessor, now, ring delay, late, operating from
    (None, NOW, 30_000, 0, NOW),
    (None, NOW, 0, 0, NOW),
    (None, NOW, 0, 3, NOW),
    (NOW - 1, NOW, 30_000, 0, NOW + 65_000),
    (NOW - 1, NOW, 1_000, 0, NOW + 7_000),
    (NOW - 1, NOW, 500, 0, NOW + 6_000),
    (NOW - 1, NOW, 0, 0, NOW + 6_000),
    (NOW - 1, NOW, 0, 1, NOW + 7_000),
    (NOW - 1, NOW, 0, 4, NOW + 21_000),
    (NOW - 1, NOW, 30_000, 5, NOW + 65_000),
    (NOW - 1, NOW, 30_000, 6, NOW + 69_000),
    (NOW - 1, NOW, 0, 16, NOW + 65_541_000),
    (NOW - 1, NOW, 0, 99, NOW + 65_541_000),
    (NOW + 64_999, NOW, 30_000, 0, NOW + 65_000),
    (NOW + 65_000, NOW, 30_000, 0, NOW + 65_001),
    (NOW + 10**6, NOW, 30_000, 0, NOW + 10**6 + 1),
]


@pytest.mark.parametrize(("predecessor", "now", "ring_delay", "late", "expected"), TIMES)
def test_operating_from(predecessor: int | None, now: int, ring_delay: int, late: int, expected: int) -> None:
    assert operating_from(predecessor, now, ring_delay, late=late) == expected


def test_the_first_proposal() -> None:
    proposal = propose(RING, None, uuid=ONE)
    assert (proposal.uuid, proposal.predecessor, proposal.ring) == (ONE, None, RING)
    assert [(e.token_range_end, len(e.streams), e.sharding_ignore_msb) for e in proposal.generation.entries] == [
        (1, 1, 0),
        (3, 1, 0),
        (5, 1, 0),
    ]


def test_entries_are_as_the_settings_say() -> None:
    proposal = propose(RING, None, uuid=ONE, entries=EntrySettings(4, 12))
    assert {(len(e.streams), e.sharding_ignore_msb) for e in proposal.generation.entries} == {(4, 12)}


def test_competing_proposals_agree_on_the_streams() -> None:
    one, two = (propose(RING, 7, uuid=uuid) for uuid in (ONE, TWO))
    assert one.generation.entries == two.generation.entries
    assert encode_proposal(one)[0][1] == encode_proposal(two)[0][1]


def test_the_same_ring_after_another_generation_has_new_streams() -> None:
    one, two = (propose(RING, predecessor, uuid=ONE).generation for predecessor in (None, NOW - 9))
    assert not one.streams() & two.streams()


def test_an_unsettled_ring_is_not_proposed() -> None:
    ring = Ring((*RING.nodes, Node("joining", "dc1", (9,), normal=False)))
    with pytest.raises(RingError, match="node joining is not NORMAL yet"):
        propose(ring, None, uuid=ONE)
