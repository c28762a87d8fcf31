"""A real cluster of three nodes that becomes four under load: one new generation, each change in its right stream."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from cassandra import DriverException
from cassandra.cluster import NoHostAvailable, Session

import tailrace_spark
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace.local.process import wait_until
from tailrace_common.generations import GenerationReader
from tailrace_common.settings import Settings
from tailrace_schemas.generations import PublishedGeneration
from tailrace_schemas.streams import LEEWAY_MS, Generation, StreamId
from tailrace_schemas.topics import Internal, internal_topic
from tests.integration.agents import AgentProcess, cql, published, settings_for
from tests.services.choice import Means

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("tailrace.test")
RING_DELAY: Final = 5
COPIES: Final = {"shop": 3, "alone": 1}
NODE = CassandraSettings(heap_mib=256, num_tokens=4, ring_delay_ms=RING_DELAY * 1000, jmx_port=0, cluster_name="three")

Ranges = list[tuple[int, int, frozenset[str]]]


class Cluster:
    """Nodes on 127.0.0.1 and up, and an agent beside each."""

    def __init__(self, place: Path, kafka: LocalKafka, prefix: str, stack: ExitStack) -> None:
        self._place, self._kafka, self._prefix, self._stack = place, kafka, prefix, stack
        self.nodes: list[LocalCassandra] = []
        self.agents: list[AgentProcess] = []

    def add_node(self, *, streams: bool) -> LocalCassandra:
        """One more, up and normal. `streams`: it takes over its share of the data first, as in a live cluster."""
        number = len(self.nodes) + 1
        settings = replace(NODE, address=f"127.0.0.{number}", yaml={"auto_bootstrap": streams})
        if self.nodes:
            first = self.nodes[0]
            settings = replace(settings, storage_port=first.storage_port, seeds=(first.address,))
        node = LocalCassandra(self._place / f"node{number}", settings)
        self._stack.callback(node.kill)
        node.start()
        self.nodes.append(node)
        return node

    def add_agent(self, node: LocalCassandra) -> AgentProcess:
        """Its agent, publishing."""
        settings = settings_for(node, self._kafka, self._prefix)
        settings["tables"] = {"include": [f"{keyspace}.*" for keyspace in COPIES]}
        settings["generations"] = {"ring_delay_seconds": RING_DELAY, "poll_seconds": 2, "streams_per_entry": 3}
        agent = AgentProcess(self._place, settings, f"agent{len(self.agents) + 1}")
        self.agents.append(self._stack.enter_context(agent))
        return agent.until_ready(120)

    def replicas(self) -> dict[str, Ranges]:
        """(after, up to, addresses) of every token range, by keyspace, as a node says them."""
        found = {}
        for keyspace in COPIES:
            text = self.nodes[0].nodetool("describering", keyspace)
            lines = re.findall(r"start_token:(-?\d+), end_token:(-?\d+), endpoints:\[([^\]]*)\]", text)
            assert lines, text
            found[keyspace] = [(int(a), int(b), frozenset(c.split(", "))) for a, b, c in lines]
            assert {len(addresses) for _, _, addresses in found[keyspace]} == {COPIES[keyspace]}
        return found

    def until_covered(self, nodes: int) -> int:
        """Wait until every agent says that the latest generation is that of the ring; its timestamp."""

        def covered() -> bool:
            rings = [agent.status().get("ring") or {} for agent in self.agents]
            said = {(ring.get("state"), ring.get("nodes"), ring.get("generation")) for ring in rings}
            return len(said) == 1 and said.pop()[:2] == ("covered", nodes)

        assert wait_until(covered, 120), [(agent.status().get("ring"), agent.words()) for agent in self.agents]
        return int(self.agents[0].status()["ring"]["generation"])


@dataclass
class Load:
    """Rows written one after the other; `acknowledged` are the keys that Cassandra took."""

    session: Session
    acknowledged: list[int] = field(default_factory=list)
    doubtful: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """While it writes."""
        stop = threading.Event()
        writer = threading.Thread(target=self._write, args=(stop,))
        writer.start()
        try:
            yield
        finally:
            stop.set()
            writer.join()

    def _write(self, stop: threading.Event) -> None:
        inserts = [self.session.prepare(f"INSERT INTO {keyspace}.t (k, v) VALUES (?, ?)") for keyspace in COPIES]
        key = 0
        while not stop.wait(0.03):
            key += 1
            try:
                for insert in inserts:
                    self.session.execute(insert, (key, f"value {key}"))
            except (DriverException, NoHostAvailable):
                self.doubtful += 1
            else:
                self.acknowledged.append(key)

    def until(self, more: int) -> None:
        """Wait for so many rows more."""
        goal = len(self.acknowledged) + more
        assert wait_until(lambda: len(self.acknowledged) >= goal, 120), (len(self.acknowledged), self.doubtful)


def holders(ranges: Ranges, token: int) -> frozenset[str]:
    """Who has a token, by the cluster's list."""
    [found] = [who for a, b, who in ranges if (a < token <= b if a < b else token > a or token <= b)]
    return found


def looked_up(generations: list[Generation], token: int, written: int) -> tuple[int, bytes]:
    """Timestamp and stream, one after the other as the words of docs/stream-ids.md go: nothing of the product's."""
    operating = [generation for generation in generations if generation.timestamp * 1000 <= written][-1]
    entries = operating.entries
    entry = next((entry for entry in entries if token <= entry.token_range_end), entries[0])
    share = (token + 2**63) * len(entry.streams) // 2**64
    return operating.timestamp, entry.streams[share].value


def hosts_by_key(kafka: LocalKafka, prefix: str, keyspace: str) -> dict[int, set[str]]:
    """Key -> the hosts that published it."""
    found = defaultdict(set)
    for record in published(kafka, prefix, f"{prefix}.{keyspace}.t"):
        source = record.change.source
        assert source is not None
        found[int.from_bytes(record.change.key or b"", "big", signed=True)].add(str(source.host))
    return found


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_fourth_node_joins_under_load(
    means: Means, kafka: LocalKafka, prefix: str, spark: SparkSession, tmp_path: Path
) -> None:
    if means is Means.CONTAINERS:
        pytest.skip("the nodes are run as child processes")
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, kafka, prefix, stack)
        for _ in range(3):
            cluster.add_node(streams=False)
        session = stack.enter_context(cql(cluster.nodes[0]))
        for keyspace, copies in COPIES.items():
            options = f"{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
            session.execute(f"CREATE KEYSPACE {keyspace} WITH replication = {options}", timeout=60)
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text) WITH cdc = true", timeout=60)
        for node in cluster.nodes:
            cluster.add_agent(node)
        first = cluster.until_covered(3)
        before = cluster.replicas()
        load = Load(session)
        with load.running():
            load.until(200)
            joined = cluster.add_node(streams=True)
            _LOG.info("the fourth node is normal after %d rows", len(load.acknowledged))
            cluster.add_agent(joined)
            second = cluster.until_covered(4)
            _LOG.info("generation %d follows %d, announced after %d rows", second, first, len(load.acknowledged))
            assert wait_until(lambda: time.time() * 1000 > second, 60)
            load.until(300)
            after = cluster.replicas()
        assert cluster.until_covered(4) == second
        tokens = {
            keyspace: {row.k: row.t for row in session.execute(f"SELECT k, token(k) AS t FROM {keyspace}.t")}
            for keyspace in COPIES
        }
        for keyspace, copies in COPIES.items():
            until_published(kafka, prefix, keyspace, load.acknowledged, copies)
        proposed = [agent.count("proposals") for agent in cluster.agents]
        won = [agent.count("proposals_won") for agent in cluster.agents]
        _LOG.info(
            "rows %d, in doubt %d; proposals %s, of them won %s", len(load.acknowledged), load.doubtful, proposed, won
        )
        events = [agent.log.read_text().count("ring event:") for agent in cluster.agents[:3]]
        assert all(events), "the driver told of the fourth node"
        assert [agent.stop() for agent in cluster.agents] == [0] * 4, [agent.words() for agent in cluster.agents]
    with GenerationReader.open({"bootstrap.servers": kafka.bootstrap}, topic_of(prefix)) as reader:
        generations = list(reader.refresh())
    assert [generation.timestamp for generation in generations] == [first, second]
    assert [len(generation.unpack().ring.nodes) for generation in generations] == [3, 4]
    assert second - generations[1].appended >= LEEWAY_MS + 2000 * RING_DELAY - 1000
    check(spark, kafka, prefix, generations, tokens, {first: before, second: after})


def topic_of(prefix: str) -> str:
    """The generations' topic."""
    return internal_topic(prefix, Internal.GENERATIONS)


def until_published(kafka: LocalKafka, prefix: str, keyspace: str, keys: list[int], copies: int) -> None:
    """Wait until that many agents have published each row."""

    def missing() -> list[int]:
        hosts = hosts_by_key(kafka, prefix, keyspace)
        return [key for key in keys if len(hosts.get(key, ())) < copies]

    assert wait_until(lambda: not missing(), 120), f"{keyspace}: {len(missing())} of {len(keys)} rows"


def check(
    spark: SparkSession,
    kafka: LocalKafka,
    prefix: str,
    generations: list[PublishedGeneration],
    tokens: Mapping[str, Mapping[int, int]],
    replicas: Mapping[int, Mapping[str, Ranges]],
) -> None:
    """Every change of every agent: generation and stream by the look-up, replicas by the cluster's lists."""
    settings = Settings.model_validate({"kafka": {"bootstrap.servers": kafka.bootstrap}, "topics": {"prefix": prefix}})
    frame = tailrace_spark.changes(spark, settings)
    query = frame.writeStream.format("memory").queryName(prefix).trigger(availableNow=True).start()
    query.awaitTermination()
    seen, streams = Counter[tuple[str, int]](), defaultdict[int, set[StreamId]](set)
    unpacked = [generation.unpack().generation for generation in generations]
    known = {keyspace: set(tokens[keyspace].values()) for keyspace in COPIES}
    for row in spark.table(prefix).collect():
        assert row.op in {"insert", "update"}, row
        assert row.token in known[row.keyspace]
        stream = StreamId(bytes(row.stream_id))
        assert (row.generation, stream.value) == looked_up(unpacked, row.token, row.written)
        ranges = replicas[row.generation][row.keyspace]
        assert holders(ranges, row.token) == holders(ranges, stream.token)
        seen[row.keyspace, row.generation] += 1
        streams[row.generation].add(stream)
    _LOG.info("changes by keyspace and generation: %s", dict(seen))
    _LOG.info("streams in use by generation: %s", {when: len(used) for when, used in streams.items()})
    assert all(seen[keyspace, generation.timestamp] >= 200 for keyspace in COPIES for generation in generations)
    assert not streams[generations[0].timestamp] & streams[generations[1].timestamp]
    assert all(len(streams[generation.timestamp]) > len(generation.entries) // 2 for generation in unpacked)
