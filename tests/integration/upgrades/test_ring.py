"""A ring whose agents are upgraded one after the other under load, after the stream that reads them."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from tailrace.local import LocalKafka
from tests.integration.letters import letters_in
from tests.integration.processes import PROGRAM
from tests.integration.rings import LiveRing, Load
from tests.integration.streams import StreamProcess
from tests.integration.upgrades.copies import Row, copy_in
from tests.services.choice import Means

_LOG: Final = logging.getLogger("tailrace.test")
COPIES: Final = {"shop": 3, "alone": 1}


def source_rows(session: Session, keyspace: str) -> list[Row]:
    query = SimpleStatement(f"SELECT k, v FROM {keyspace}.t", consistency_level=ConsistencyLevel.ALL)
    return sorted(map(tuple, session.execute(query)))


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.promise("upgrade.installation")
def test_a_ring_is_upgraded_node_by_node_under_load(
    means: Means, former: tuple[str, ...], kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """In the order of the guide: the stream, then each agent; the second one is killed before its upgrade."""
    if means is Means.CONTAINERS:
        pytest.skip("the nodes are run as child processes")
    with ExitStack() as stack:
        copy = stack.enter_context(copy_in(tmp_path / "copy"))
        ring = LiveRing(tmp_path, kafka, prefix, COPIES, stack)
        session = ring.begin(3, former)
        ring.until_covered(3)

        def stream(name: str, program: tuple[str, ...] = PROGRAM) -> StreamProcess:
            return StreamProcess(copy.directory, kafka, prefix, copy.url, name=name, program=program)

        def copied(keyspace: str) -> list[Row]:
            return copy.rows(f"{keyspace}_t", "k, v")

        def until_copied(process: StreamProcess, count: int) -> None:
            """Wait until the copy of each table has so many rows."""
            process.until(lambda: all(len(copied(keyspace)) >= count for keyspace in COPIES))

        def until_equal(process: StreamProcess, keyspace: str) -> None:
            process.until(lambda: copied(keyspace) == source_rows(session, keyspace))

        load = Load(session, tuple(COPIES))
        with load.running():
            load.until(50)
            with stream("former", former) as old_stream:
                until_copied(old_stream, 50)
                assert old_stream.stop() == 0, old_stream.words()
            new_stream = stack.enter_context(stream("now"))
            for agent, is_killed in zip(ring.agents, (False, True, False), strict=True):
                load.until(50)
                if is_killed:
                    agent.kill()
                else:
                    assert agent.stop() == 0, agent.words()
                load.until(50)
                agent.start(PROGRAM).until_ready(120)
                until_copied(new_stream, len(load.acknowledged))
            ring.until_covered(3)
            load.until(50)
        for keyspace, copies in COPIES.items():
            ring.until_published(keyspace, load.acknowledged, copies)
            until_equal(new_stream, keyspace)
        assert new_stream.stop() == 0, new_stream.words()
        assert [agent.stop() for agent in ring.agents] == [0] * 3, [agent.words() for agent in ring.agents]
        assert letters_in(kafka, prefix) == []
    _LOG.info("%d rows, %d in doubt", len(load.acknowledged), load.doubtful)
    ring.require_each_copy_once(load.acknowledged)
