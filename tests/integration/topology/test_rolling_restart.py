"""Three agents of a real ring that are restarted one after the other under load: each replica's change, once."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tailrace.local import LocalKafka
from tests.integration.rings import LiveRing, Load
from tests.services.choice import Means

_LOG: Final = logging.getLogger("tailrace.test")
COPIES: Final = {"shop": 3, "alone": 1}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_agents_are_restarted_one_after_the_other_under_load(
    means: Means, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """Twice in order and once by kill -9, as upgrades and crashes do; no row waits for an agent of another node."""
    if means is Means.CONTAINERS:
        pytest.skip("the nodes are run as child processes")
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, COPIES, stack)
        session = ring.begin(3)
        ring.until_covered(3)
        load = Load(session, tuple(COPIES))
        with load.running():
            load.until(100)
            for agent, kills in zip(ring.agents, (False, False, True), strict=True):
                if kills:
                    agent.kill()
                else:
                    assert agent.stop() == 0, agent.words()
                load.until(50)
                agent.start().until_ready(120)
                load.until(50)
        for keyspace, copies in COPIES.items():
            ring.until_published(keyspace, load.acknowledged, copies)
        assert [agent.stop() for agent in ring.agents] == [0] * 3, [agent.words() for agent in ring.agents]
    _LOG.info("%d rows, %d in doubt", len(load.acknowledged), load.doubtful)
    ring.require_each_copy_once(load.acknowledged)
