"""A real cluster of three nodes that becomes four under load: one new generation, each change in its right stream."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.local import LocalKafka
from tailrace_schemas.streams import LEEWAY_MS
from tests.integration.rings import RING_DELAY_SECONDS, LiveRing, Load, judge_streams
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("tailrace.test")
COPIES: Final = {"shop": 3, "alone": 1}


@pytest.mark.promise("ring.one-generation", "ring.same-replicas")
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("as_processes")
def test_a_fourth_node_joins_under_load(kafka: LocalKafka, prefix: str, spark: SparkSession, tmp_path: Path) -> None:
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, COPIES, stack)
        session = ring.begin(3)
        first = ring.until_covered(3)
        before = ring.replicas()
        load = Load(session, tuple(COPIES))
        with load.running():
            load.until(200)
            joined = ring.add_node(streams=True)
            _LOG.info("the fourth node is normal after %d rows", len(load.acknowledged))
            ring.add_agent(joined)
            second = ring.until_covered(4)
            _LOG.info("generation %d follows %d, announced after %d rows", second, first, len(load.acknowledged))
            until(lambda: time.time() * 1000 > second, "the generation's second")
            load.until(300)
            after = ring.replicas()
        assert ring.until_covered(4) == second
        tokens = ring.tokens(session)
        for keyspace, copies in COPIES.items():
            ring.until_published(keyspace, load.acknowledged, copies)
        proposed = [agent.count("proposals") for agent in ring.agents]
        won = [agent.count("proposals_won") for agent in ring.agents]
        _LOG.info(
            "rows %d, in doubt %d; proposals %s, of them won %s", len(load.acknowledged), load.doubtful, proposed, won
        )
        events = [agent.log.read_text().count("ring event:") for agent in ring.agents[:3]]
        assert all(events), "the driver told of the fourth node"
        assert [agent.stop() for agent in ring.agents] == [0] * 4, [agent.words() for agent in ring.agents]
    generations = ring.generations()
    assert [generation.timestamp for generation in generations] == [first, second]
    assert [len(generation.unpack().ring.nodes) for generation in generations] == [3, 4]
    assert second - generations[1].appended >= LEEWAY_MS + 2000 * RING_DELAY_SECONDS - 1000
    judge_streams(spark, kafka, prefix, generations, tokens, {first: before, second: after}, 200)
