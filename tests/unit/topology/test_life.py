"""The life of generations among many agents: one for each ring that settled, the same for every reader."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_common.kafka import Record
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import GenerationLog, PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import LEEWAY_MS
from tests.properties import examples
from tests.unit.topology.memory import MemorySource, MemoryTopic
from tests.unit.topology.simulation import RING_DELAY, Change, Trouble, World, ring_at_random

ENOUGH = 40 * RING_DELAY
"""After so long without a change, the second half of it without trouble, a generation is there."""


def _doing(ring: Ring, chosen: random.Random) -> Ring:
    busy = chosen.choice(ring.nodes).host
    return Ring(tuple(Node(n.host, n.datacenter, n.tokens, normal=n.host != busy) for n in ring.nodes))


def _history(chosen: random.Random, agents: int, rings: int, tokens: int) -> list[Change]:
    """Rings that come, with nodes that join or leave in between; some stay long enough to settle, some do not."""
    at, changes = 0.0, [Change(0.0, ring_at_random(chosen, agents, tokens), (0.0,) * agents)]
    for _ in range(rings):
        at += chosen.choice([5.0, 40.0, ENOUGH])
        again = chosen.random() < 0.3
        ring = (
            chosen.choice([c for c in changes if c.ring.normal]).ring
            if again
            else ring_at_random(chosen, chosen.randint(1, agents), tokens)
        )
        if chosen.random() < 0.5:
            changes.append(Change(at, _doing(ring, chosen), _lags(chosen, agents)))
            at += chosen.choice([RING_DELAY + 1, ENOUGH])
        changes.append(Change(at, ring, _lags(chosen, agents)))
    return changes


def _lags(chosen: random.Random, agents: int) -> tuple[float, ...]:
    """Cassandra's ring delay is what every node knows a change after."""
    return tuple(chosen.uniform(0, RING_DELAY) for _ in range(agents))


def _settled(changes: list[Change], until: float) -> list[Ring]:
    """The rings that stayed long enough, without those that stood there already."""
    ends = [change.at for change in changes[1:]] + [until]
    stayed = [c.ring for c, end in zip(changes, ends, strict=True) if end - c.at >= ENOUGH and c.ring.normal]
    return [ring for place, ring in enumerate(stayed) if place == 0 or stayed[place - 1] != ring]


def _all_alike(records: list[Record], published: tuple[PublishedGeneration, ...]) -> None:
    """Readers that read at other moments, in other portions, have the same list, or its beginning."""
    log, seen = GenerationLog(), 0
    for record in records:
        log.feed(record.offset, record.timestamp, record.key, record.value)
        assert log.published == published[: len(log.published)]
        assert len(log.published) - seen in (0, 1)
        seen = len(log.published)
    topic = MemoryTopic()
    reader = GenerationReader(MemorySource(topic), now=lambda: 0.0)
    for at in range(0, len(records), 7):
        topic.records += records[at : at + 7]
        reader.refresh()
    assert reader.published == published


TROUBLES = st.builds(
    Trouble,
    calm=st.just(ENOUGH / 2),
    death=st.sampled_from([0.0, 0.1, 0.4]),
    blind=st.sampled_from([0.0, 0.1]),
    deaf=st.sampled_from([0.0, 0.1]),
    stall=st.sampled_from([0.0, 0.2]),
    stall_seconds=st.sampled_from([5.0, 150.0]),
)


@pytest.mark.promise("ring.one-generation")
@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    agents=st.integers(1, 5),
    rings=st.integers(0, 4),
    tokens=st.sampled_from([1, 3]),
    trouble=TROUBLES,
    broker=st.sampled_from([0, 2_000]),
)
def test_every_ring_that_settles_has_one_generation(
    seed: int, agents: int, rings: int, tokens: int, trouble: Trouble, broker: int
) -> None:
    chosen = random.Random(seed)
    changes = _history(chosen, agents, rings, tokens)
    until = changes[-1].at + ENOUGH
    world = World(changes, agents, chosen, trouble, broker)
    world.run(until)
    published = world.published()
    _all_alike(world.topic.records, published)

    found = [generation.unpack() for generation in published]
    made_from = [proposal.ring for proposal in found]
    assert all(a != b for a, b in pairwise(made_from))
    assert made_from[-1] == changes[-1].ring
    came = iter([change.ring for change in changes if change.ring.normal])
    assert all(ring in came for ring in made_from), "none but for a change, in their order"
    settled = iter(made_from)
    assert all(ring in settled for ring in _settled(changes, until)), "one for each, in their order"
    for before, after in pairwise(published):
        assert after.predecessor == before.timestamp < after.timestamp
        assert after.appended <= after.timestamp - LEEWAY_MS
    for proposal in found:
        assert [entry.token_range_end for entry in proposal.generation.entries] == list(proposal.ring.tokens)


@pytest.mark.slow
@pytest.mark.parametrize("agents", [1, 3, 40])
def test_in_good_weather_one_agent_proposes_and_the_others_see_it(agents: int) -> None:
    chosen = random.Random(agents)
    first, second = (ring_at_random(chosen, agents, 4) for _ in range(2))
    changes = [Change(0, first, (0.0,) * agents), Change(500, second, (0.0,) * agents)]
    world = World(changes, agents, chosen, Trouble())
    world.run(1200)
    assert [generation.unpack().ring for generation in world.published()] == [first, second]
    appended = len(world.topic.records)
    # The first ring's generation is everybody's at once; the second's is the first one's, others look meanwhile.
    assert appended <= 2 * agents + 2 * 2
