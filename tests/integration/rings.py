"""Real rings of several nodes with agents beside them, rows written meanwhile, and where each change belongs."""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import combinations, count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cassandra import ConsistencyLevel, DriverException
from cassandra.cluster import NoHostAvailable, Session
from cassandra.query import SimpleStatement

import tailrace_spark
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.topics import GenerationReader
from tailrace_schemas.generation_records import PublishedGeneration
from tailrace_schemas.streams import Generation, StreamId
from tailrace_schemas.topics import Internal, internal_topic
from tests.integration.agents import AgentProcess, cql, create_keyspace, in_log_order, published, settings_for
from tests.integration.stream_settings import stream_settings
from tests.support.background import Background
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG: Final = logging.getLogger("tailrace.test")
RING_DELAY_SECONDS: Final = 5
NODE: Final = CassandraSettings(
    heap_mib=256, ring_delay_ms=RING_DELAY_SECONDS * 1000, jmx_port=0, cluster_name="ring", start_seconds=600
)

Ranges = list[tuple[int, int, frozenset[str]]]
"""(after, up to, addresses of the replicas) of every token range."""


class LiveRing:
    """Nodes on 127.0.0.1 and up, agents beside those that are asked for, and keyspaces with so many copies."""

    def __init__(
        self, place: Path, kafka: LocalKafka, prefix: str, copies: Mapping[str, int], stack: ExitStack
    ) -> None:
        self.copies = copies
        self._place, self._kafka, self._prefix, self._stack = place, kafka, prefix, stack
        self.nodes: list[LocalCassandra] = []
        self.agents: list[AgentProcess] = []

    def add_node(self, settings: CassandraSettings = NODE, *, streams: bool = False) -> LocalCassandra:
        """One more, up and normal. `streams`: it takes over its share of the data first, as in a live cluster."""
        number = len(self.nodes) + 1
        settings = replace(settings, address=f"127.0.0.{number}", yaml={"auto_bootstrap": streams})
        if self.nodes:
            first = self.nodes[0]
            settings = replace(settings, storage_port=first.storage_port, seeds=(first.address,))
        node = LocalCassandra(self._place / f"node{number}", settings)
        self._stack.callback(node.kill)
        node.start()
        self.nodes.append(node)
        return node

    def begin(self, nodes: int) -> Session:
        """So many nodes with the tables and an agent beside each; a session with the first one."""
        for _ in range(nodes):
            self.add_node()
        session = self._stack.enter_context(cql(self.nodes[0]))
        self.create_tables(session)
        for node in self.nodes:
            self.add_agent(node)
        return session

    def create_tables(self, session: Session) -> None:
        """A table `t (k int, v text)` in each keyspace."""
        for keyspace, copies in self.copies.items():
            create_keyspace(session, keyspace, copies)
            session.execute(f"CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v text) WITH cdc = true")

    def add_agent(self, node: LocalCassandra) -> AgentProcess:
        """Its agent, publishing."""
        settings = settings_for(node, self._kafka, self._prefix)
        settings["tables"] = {"include": [f"{keyspace}.*" for keyspace in self.copies]}
        settings["generations"] = {
            "ring_delay_seconds": RING_DELAY_SECONDS,
            "poll_seconds": 2,
            "streams_per_entry": 3,
        }
        agent = AgentProcess(self._place, settings, f"agent{len(self.agents) + 1}")
        self.agents.append(self._stack.enter_context(agent))
        return agent.until_ready(120)

    def replicas(self) -> dict[str, Ranges]:
        """The ranges of each keyspace, as the first node says them."""
        found = {}
        for keyspace, copies in self.copies.items():
            text = self.nodes[0].nodetool("describering", keyspace)
            lines = re.findall(r"start_token:(-?\d+), end_token:(-?\d+), endpoints:\[([^\]]*)\]", text)
            assert lines, text
            found[keyspace] = [(int(a), int(b), frozenset(c.split(", "))) for a, b, c in lines]
            assert {len(addresses) for _, _, addresses in found[keyspace]} == {copies}
        return found

    def until_covered(self, nodes: int, *, after: int = 0) -> int:
        """Wait until every agent says that one generation, later than that one, is this ring's; its timestamp."""
        later: list[int] = []

        def covered() -> bool:
            rings = [agent.status().get("ring") or {} for agent in self.agents]
            said = {(ring.get("state"), ring.get("nodes"), ring.get("generation")) for ring in rings}
            later[:] = [int(timestamp or 0) for state, count, timestamp in said if (state, count) == ("covered", nodes)]
            return len(said) == len(later) == 1 and later[0] > after

        until(
            covered,
            f"one generation for {nodes} nodes",
            120,
            state=lambda: [(agent.status().get("ring"), agent.words()) for agent in self.agents],
        )
        return later[0]

    def until_published(self, keyspace: str, keys: Sequence[int], copies: int) -> None:
        """Wait until that many agents have published each row."""

        def missing() -> list[int]:
            hosts = self._hosts(keyspace)
            return [key for key in keys if len(hosts.get(key, ())) < copies]

        until(lambda: not missing(), f"{copies} times each row of {keyspace}", 120, state=missing)

    def _counts(self, keyspace: str) -> Counter[tuple[str, int]]:
        """How often each host published each key of the keyspace's table."""
        records = published(self._kafka, self._prefix, f"{self._prefix}.{keyspace}.t")
        sources = [(record, record.change.source) for record in records if record.change.source is not None]
        for host in {source.host for _, source in sources}:
            assert in_log_order([record for record, source in sources if source.host == host]), f"{keyspace}: {host}"
        return Counter(
            (source.host, int.from_bytes(record.change.key or b"", "big", signed=True)) for record, source in sources
        )

    def generations(self) -> list[PublishedGeneration]:
        """What somebody finds who reads the topic now."""
        topic = internal_topic(self._prefix, Internal.GENERATIONS)
        with GenerationReader.open({"bootstrap.servers": self._kafka.bootstrap}, topic) as reader:
            return list(reader.refresh())

    def tokens(self, session: Session) -> dict[str, set[int]]:
        """The tokens of the rows that any replica has, as Cassandra tells them, by keyspace."""

        def of(keyspace: str) -> set[int]:
            query = SimpleStatement(f"SELECT token(k) AS t FROM {keyspace}.t", consistency_level=ConsistencyLevel.ALL)
            return {row.t for row in session.execute(query)}

        return {keyspace: of(keyspace) for keyspace in self.copies}

    def _hosts(self, keyspace: str) -> dict[int, set[str]]:
        found = defaultdict(set)
        for record in published(self._kafka, self._prefix, f"{self._prefix}.{keyspace}.t"):
            source = record.change.source
            assert source is not None
            found[int.from_bytes(record.change.key or b"", "big", signed=True)].add(str(source.host))
        return found


@dataclass
class Load:
    """Rows written one after the other, into each keyspace; `acknowledged` are the keys that Cassandra took."""

    session: Session
    keyspaces: Sequence[str]
    acknowledged: list[int] = field(default_factory=list)
    doubtful: int = 0

    def running(self) -> Background:
        """While it writes."""
        insert_into = "INSERT INTO {}.t (k, v) VALUES (?, ?)"
        inserts = [self.session.prepare(insert_into.format(keyspace)) for keyspace in self.keyspaces]
        keys = count(1)

        def write() -> None:
            key = next(keys)
            try:
                for insert in inserts:
                    self.session.execute(insert, (key, f"value {key}"))
            except (DriverException, NoHostAvailable):
                self.doubtful += 1
            else:
                self.acknowledged.append(key)

        return Background(write, 0.03)

    def until(self, more: int) -> None:
        """Wait for so many rows more."""
        goal = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= goal, f"{more} more rows", 120, state=lambda: self.doubtful)


def holders(ranges: Ranges, token: int) -> frozenset[str]:
    """Who has a token, by the cluster's list."""
    [found] = [who for a, b, who in ranges if (a < token <= b if a < b else token > a or token <= b)]
    return found


def looked_up(generations: Sequence[Generation], token: int, written: int) -> tuple[int, bytes]:
    """Timestamp and stream, one after the other as the words of docs/stream-ids.md go: nothing of the product's."""
    operating = [generation for generation in generations if generation.timestamp * 1000 <= written][-1]
    entries = operating.entries
    entry = next((entry for entry in entries if token <= entry.token_range_end), entries[0])
    share = (token + 2**63) * len(entry.streams) // 2**64
    return operating.timestamp, entry.streams[share].value


def judge_streams(
    spark: SparkSession,
    kafka: LocalKafka,
    prefix: str,
    generations: Sequence[PublishedGeneration],
    tokens: Mapping[str, set[int]],
    replicas: Mapping[int, Mapping[str, Ranges]],
    least: int,
) -> None:
    """Every change of every agent: generation and stream by the look-up, replicas by the cluster's lists.

    `replicas` by generation, then keyspace; of each there must be `least` changes.
    """
    settings = stream_settings(kafka, prefix)
    frame = tailrace_spark.changes(spark, settings)
    query = frame.writeStream.format("memory").queryName(prefix).trigger(availableNow=True).start()
    query.awaitTermination()
    seen, streams = Counter[tuple[str, int]](), defaultdict[int, set[StreamId]](set)
    unpacked = [generation.unpack().generation for generation in generations]
    for row in spark.table(prefix).collect():
        assert row.op in {"insert", "update"}, row
        assert row.token in tokens[row.keyspace]
        stream = StreamId(bytes(row.stream_id))
        assert (row.generation, stream.value) == looked_up(unpacked, row.token, row.written)
        ranges = replicas[row.generation][row.keyspace]
        assert holders(ranges, row.token) == holders(ranges, stream.token)
        seen[row.keyspace, row.generation] += 1
        streams[row.generation].add(stream)
    _LOG.info("changes by keyspace and generation: %s", dict(seen))
    _LOG.info("streams in use by generation: %s", {when: len(used) for when, used in streams.items()})
    counts = {(keyspace, generation.timestamp): 0 for keyspace in tokens for generation in generations} | seen
    assert min(counts.values()) >= least, counts
    assert not any(one & other for one, other in combinations(streams.values(), 2))
    assert all(len(streams[generation.timestamp]) > len(generation.entries) // 2 for generation in unpacked)
