"""Several agents, one topic: exactly one first generation, whoever dies and whenever."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from tailrace_common.topics import GenerationReader
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.ring import Node, Ring
from tests.proposing import take_first_step
from tests.support.kafka import Crash
from tests.unit.topology.memory import NOW, MemorySource, MemoryTopic

RING = Ring((Node("a", "dc1", (1, 5)), Node("b", "dc1", (3,))))
# Several chunks, so that there is something in between.
TOKENS = random.Random(0).sample(range(2**62), 9_000)
LARGE = Ring((Node("a", "dc1", tuple(TOKENS)),))
# Before which record of its proposal something happens to an agent; behind the last one it is done.
STEPS = [(step, RING) for step in range(3)] + [(step, LARGE) for step in range(4)]


def _reader(topic: MemoryTopic) -> GenerationReader:
    return GenerationReader(MemorySource(topic), now=lambda: NOW / 1000)


def _start(topic: MemoryTopic, agent: int, ring: Ring = RING) -> PublishedGeneration:
    """What an agent does when it starts."""
    first = take_first_step(ring, topic, _reader(topic), lambda: UUID(int=agent))
    assert first is not None
    return first


@pytest.mark.slow
@pytest.mark.parametrize(("step", "ring"), STEPS)
def test_an_agent_that_starts_in_the_middle_of_another(step: int, ring: Ring) -> None:
    topic = MemoryTopic()
    meanwhile: list[PublishedGeneration] = []

    def interrupt(count: int) -> None:
        if count == step and not meanwhile:
            topic.before = lambda _: None
            meanwhile.append(_start(topic, 2, ring))

    topic.before = interrupt
    found = _start(topic, 1, ring)
    reader = _reader(topic)
    assert reader.refresh() == (found,)
    assert meanwhile in ([], [found])


@pytest.mark.promise("ring.half-published")
@pytest.mark.parametrize(("step", "ring"), STEPS)
def test_an_agent_that_dies_in_the_middle_leaves_nothing_behind(step: int, ring: Ring) -> None:
    topic = MemoryTopic()

    def die(count: int) -> None:
        if count == step:
            raise Crash

    topic.before = die
    died = False
    try:
        _start(topic, 1, ring)
    except Crash:
        died = True
    topic.before = lambda _: None
    if died:
        assert _reader(topic).refresh() == ()
    found = _start(topic, 2, ring)
    assert found.uuid == UUID(int=2 if died else 1)
    assert _reader(topic).refresh() == (found,)


def test_an_append_that_fails_is_tried_again_from_the_start() -> None:
    topic = MemoryTopic()

    def fail(count: int) -> None:
        if count == 1:
            topic.before = lambda _: None
            raise ServiceError("Kafka is away")

    topic.before = fail
    with pytest.raises(ServiceError, match="away"):
        _start(topic, 1)
    assert _start(topic, 1).uuid == UUID(int=1)
    assert _start(topic, 1) == _start(topic, 2)


def test_an_unsettled_ring_writes_nothing() -> None:
    topic = MemoryTopic()
    ring = Ring((Node("a", "dc1", (1,), normal=False),))
    assert take_first_step(ring, topic, _reader(topic), lambda: UUID(int=1)) is None
    assert topic.records == []
