"""What is proposed for a ring, and from when on it is to operate."""

from __future__ import annotations

from uuid import UUID

import pytest

from tailrace.topology.proposals import EntrySettings, operating_from, propose
from tailrace_schemas.generations import GenerationLog, PublishedGeneration, encode_proposal
from tailrace_schemas.ring import Node, Ring, RingError

NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (1, 5)), Node("b", "dc1", (3,))))
ONE, TWO = UUID(int=1), UUID(int=2)

TIMES = [
    # predecessor, now, ring delay, operating from
    (None, NOW, 30_000, NOW),
    (None, NOW, 0, NOW),
    (NOW - 1, NOW, 30_000, NOW + 65_000),
    (NOW - 1, NOW, 1_000, NOW + 7_000),
    (NOW + 64_999, NOW, 30_000, NOW + 65_000),
    (NOW + 65_000, NOW, 30_000, NOW + 65_001),
    (NOW + 10**6, NOW, 30_000, NOW + 10**6 + 1),
]


@pytest.mark.parametrize(("predecessor", "now", "ring_delay", "expected"), TIMES)
def test_operating_from(predecessor: int | None, now: int, ring_delay: int, expected: int) -> None:
    assert operating_from(predecessor, now, ring_delay) == expected


def test_the_first_proposal() -> None:
    proposal = propose(RING, None, NOW, uuid=ONE)
    assert (proposal.uuid, proposal.predecessor, proposal.ring) == (ONE, None, RING)
    assert proposal.generation.timestamp == NOW
    assert [(e.token_range_end, len(e.streams), e.sharding_ignore_msb) for e in proposal.generation.entries] == [
        (1, 1, 0),
        (3, 1, 0),
        (5, 1, 0),
    ]


def test_entries_are_as_the_settings_say() -> None:
    proposal = propose(RING, None, NOW, uuid=ONE, entries=EntrySettings(4, 12))
    assert {(len(e.streams), e.sharding_ignore_msb) for e in proposal.generation.entries} == {(4, 12)}


def test_competing_proposals_agree_on_the_streams() -> None:
    one, two = (propose(RING, 7, NOW + n, uuid=uuid) for n, uuid in enumerate((ONE, TWO)))
    assert one.generation.entries == two.generation.entries
    assert one.generation.timestamp != two.generation.timestamp


def test_the_same_ring_after_another_generation_has_new_streams() -> None:
    one, two = (propose(RING, predecessor, NOW, uuid=ONE).generation for predecessor in (None, NOW - 9))
    assert not one.streams() & two.streams()


def test_an_unsettled_ring_is_not_proposed() -> None:
    ring = Ring((*RING.nodes, Node("joining", "dc1", (9,), normal=False)))
    with pytest.raises(RingError, match="node joining is not NORMAL yet"):
        propose(ring, None, NOW, uuid=ONE)


def test_a_chain_of_proposals_is_valid() -> None:
    log = GenerationLog()
    offset, now = 0, NOW
    for n in range(4):
        latest = log.latest
        proposal = propose(RING, None if latest is None else latest.timestamp, now, uuid=UUID(int=n))
        for key, value in encode_proposal(proposal):
            found = log.feed(offset, now, key, value)
            offset += 1
        assert isinstance(found, PublishedGeneration)
        now += 1_000
    assert len(log.published) == 4
