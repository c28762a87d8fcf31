"""Three agents of a real ring that are restarted one after the other under load: each replica's change, once."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tailrace.local import LocalKafka
from tests.integration.agents import in_log_order, published
from tests.integration.rings import LiveRing, Load
from tests.services.choice import Means

_LOG: Final = logging.getLogger("tailrace.test")
COPIES: Final = {"shop": 3, "alone": 1}


def copies_of(kafka: LocalKafka, prefix: str, keyspace: str) -> Counter[tuple[str, int]]:
    """How often each host published each key of the keyspace's table."""
    records = published(kafka, prefix, f"{prefix}.{keyspace}.t")
    hosts = {record.change.source.host for record in records if record.change.source is not None}
    for host in hosts:
        of_host = [record for record in records if record.change.source and record.change.source.host == host]
        assert in_log_order(of_host), f"{keyspace}: {host}"
    return Counter(
        (record.change.source.host, int.from_bytes(record.change.key or b"", "big", signed=True))
        for record in records
        if record.change.source is not None
    )


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
    for keyspace, copies in COPIES.items():
        counts = copies_of(kafka, prefix, keyspace)
        assert set(counts.values()) == {1}, f"{keyspace}: {[key for key, count in counts.items() if count > 1][:9]}"
        replicas = Counter(key for _, key in counts)
        assert {key: replicas[key] for key in load.acknowledged} == dict.fromkeys(load.acknowledged, copies)
