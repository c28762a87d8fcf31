"""A real ring that changes in every other way: a token moves, a node leaves, dies and is replaced, dies for good."""

from __future__ import annotations

import logging
import re
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.local import LocalCassandra, LocalKafka
from tests.integration.agents import cql
from tests.integration.rings import NODE, LiveRing, Load, Ranges, judge_streams
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("tailrace.test")
COPIES: Final = {"pair": 2, "alone": 1}
NODES: Final = 4
MOVED_TO: Final = 7_000_000_000_000_000_000
ROWS: Final = 60


def token_of(number: int) -> int:
    """Of the node: the nth of equal shares."""
    return -(2**63) + (number + 1) * (2**64 // NODES) - 1


def host_id(asked: LocalCassandra, node: LocalCassandra) -> str:
    """As another node knows it, which is down."""
    status = asked.nodetool("status")
    [(state, found)] = re.findall(rf"(?m)^(\w\w) +{re.escape(node.address)} .* ([0-9a-f-]{{36}}) ", status)
    assert state == "DN", status
    return str(found)


def until_down(asked: LocalCassandra, node: LocalCassandra) -> None:
    """Wait until another node knows that this one does not answer."""
    down = rf"(?m)^DN +{re.escape(node.address)} "
    until(lambda: re.search(down, asked.nodetool("status")), "a dead node", state=lambda: asked.nodetool("status"))


@pytest.mark.promise("ring.membership", "ring.same-replicas")
@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.usefixtures("as_processes")
def test_every_change_of_the_ring_is_one_generation(
    kafka: LocalKafka, prefix: str, spark: SparkSession, tmp_path: Path
) -> None:
    replicas: dict[int, dict[str, Ranges]] = {}
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, COPIES, stack)
        for number in range(NODES):
            ring.add_node(replace(NODE, tokens=(token_of(number),)))
        asked, _, third, fourth = ring.nodes
        session = stack.enter_context(cql(asked))
        ring.create_tables(session)
        for node in ring.nodes[:2]:
            ring.add_agent(node)
        load = Load(session, tuple(COPIES))

        def settled(words: str, nodes: int) -> None:
            """One more generation for so many nodes; rows are written while it operates."""
            timestamp = ring.until_covered(nodes, after=max(replicas, default=0))
            _LOG.info("%s: generation %d after %d rows", words, timestamp, len(load.acknowledged))
            until(lambda: time.time() * 1000 > timestamp, "the generation's time")
            replicas[timestamp] = ring.replicas()
            load.until(ROWS)

        with load.running():
            settled("four nodes", 4)
            fourth.nodetool("move", "--", str(MOVED_TO))
            settled("the fourth's token moved", 4)
            fourth.nodetool("decommission")
            fourth.kill()
            settled("the fourth left", 3)
            third.kill()
            until_down(asked, third)
            replaces = f"-Dcassandra.replace_address_first_boot={third.address}"
            fifth = ring.add_node(replace(NODE, num_tokens=1, jvm=(replaces,)), streams=True)
            settled("the fifth replaced the third", 3)
            fifth.kill()
            until_down(asked, fifth)
            asked.nodetool("removenode", host_id(asked, fifth))
            settled("the fifth died for good", 2)
            last = load.acknowledged[-ROWS // 2 :]
        tokens = ring.tokens(session)
        ring.until_published("pair", last, 2)
        won = [agent.count("proposals_won") for agent in ring.agents]
        _LOG.info("rows %d, in doubt %d; proposals won %s", len(load.acknowledged), load.doubtful, won)
        assert sum(won) == len(replicas)
        assert [agent.stop() for agent in ring.agents] == [0] * 2, [agent.words() for agent in ring.agents]
    generations = ring.generations()
    assert [generation.timestamp for generation in generations] == list(replicas)
    rings = [generation.unpack().ring for generation in generations]
    assert [len(each.nodes) for each in rings] == [4, 4, 3, 3, 2]
    owned = [{node.tokens: node.host for node in each.nodes} for each in rings]
    assert owned[1].keys() - owned[0].keys() == {(MOVED_TO,)}
    assert owned[2].items() < owned[1].items()
    assert owned[3].keys() == owned[2].keys()
    assert len(set(owned[3].values()) - set(owned[2].values())) == 1
    assert owned[4].items() < owned[3].items()
    judge_streams(spark, kafka, prefix, generations, tokens, replicas, ROWS // 6)
