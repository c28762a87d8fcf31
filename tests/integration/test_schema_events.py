"""DDL and TRUNCATE on a real node and Kafka: told in `.schema-changes`, truncations in the tables' topics too."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cassandra.cluster import Session

from tailrace.history.events import EventKind, SchemaEvent, decode_event
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import read_to_end
from tailrace_schemas.change import SCHEMA_INFERRED, Op
from tailrace_schemas.tokens import partition
from tests.integration.agents import (
    AgentProcess,
    Published,
    cql,
    create_keyspace,
    published,
    roll_over,
    settings_for,
    start_here,
)
from tests.services.choice import Means


class Bench:
    """A keyspace, a prefix, and its agent."""

    def __init__(
        self, session: Session, cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace: str, place: Path
    ) -> None:
        self.session = session
        self.cassandra = cassandra
        self.keyspace = keyspace
        self._kafka = kafka
        self._prefix = prefix
        settings = settings_for(cassandra, kafka, prefix, keyspace)
        # Else a segment that a test hides from cdc_raw would be read from there.
        settings["agent"]["commitlog_directory"] = str(place / "not at hand")
        self.agent = AgentProcess(place, settings)

    def run(self, *statements: str) -> None:
        """Execute statements in which # is the keyspace."""
        for statement in statements:
            self.session.execute(statement.replace("#", self.keyspace), timeout=60)

    def records(self, table: str = "t") -> list[Published]:
        """What is in the table's topic, in the order of the log."""
        found = published(self._kafka, self._prefix, f"{self._prefix}.{self.keyspace}.{table}")
        return sorted(found, key=_place)

    def events(self) -> list[SchemaEvent]:
        """What `.schema-changes` has of the keyspace."""
        helpers = ("instant", "filler")
        return [one for one in self.all_events() if one.keyspace == self.keyspace and one.name not in helpers]

    def all_events(self) -> list[SchemaEvent]:
        """Everything in it, as it was appended: also what other tests' DDL left in the log."""
        config: dict[str, bool | int | float | str] = {"bootstrap.servers": self._kafka.bootstrap}
        records = read_to_end(config, f"{self._prefix}.schema-changes", 0)
        return [decode_event(record.value or b"")[1] for record in records]

    def words(self) -> list[str]:
        """The same for people, the keyspace as #."""
        return [str(event).replace(self.keyspace, "#") for event in self.events()]

    def until_told(self, word: str, count: int = 1) -> None:
        """Wait until so many events say it."""
        self.agent.until(lambda: sum(word in one for one in self.words()) >= count)

    def operations(self, table: str = "t") -> list[object]:
        """Keys of what was written, and "truncate" once for all partitions, in the order of the log."""
        found: list[object] = []
        for record in self.records(table):
            if record.change.op is not Op.TRUNCATE:
                found.append(int.from_bytes(record.change.key or b"", "big"))
            elif record.partition == 0:
                found.append("truncate")
        return found


def _place(record: Published) -> tuple[int, int, int]:
    source = record.change.source
    assert source is not None
    return source.position.segment, source.position.offset, record.partition


BenchOf = Callable[[Session, LocalCassandra], Bench]


@pytest.fixture
def bench_of(
    kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path
) -> Callable[[Session, LocalCassandra], Bench]:
    """The bench of a node."""

    def make(session: Session, cassandra: LocalCassandra) -> Bench:
        create_keyspace(session, keyspace_name)
        start_here(session, cassandra, kafka, prefix, keyspace_name)
        return Bench(session, cassandra, kafka, prefix, keyspace_name, tmp_path)

    return make


WHILE_IT_RUNS = (
    "CREATE TYPE #.u (a int)",
    "CREATE TABLE #.t (k int, c int, v text, home frozen<u>, PRIMARY KEY (k, c)) WITH cdc = true",
    "INSERT INTO #.t (k, c, v) VALUES (1, 1, 'x')",
    "ALTER TABLE #.t ADD w int",
    "INSERT INTO #.t (k, c, w) VALUES (2, 1, 7)",
    "TRUNCATE #.t",
    "INSERT INTO #.t (k, c, w) VALUES (3, 1, 7)",
    "ALTER TYPE #.u ADD b int",
    "ALTER TABLE #.t RENAME c TO d",
    "ALTER TABLE #.t DROP w",
    "ALTER TABLE #.t WITH cdc = false",
    "TRUNCATE #.t",
    "INSERT INTO #.t (k, d, v) VALUES (4, 1, 'not published')",
    "ALTER TABLE #.t WITH cdc = true",
    "ALTER TABLE #.t ADD w int",
    "INSERT INTO #.t (k, d, w) VALUES (5, 1, 7)",
    "ALTER TABLE #.t WITH comment = 'defines nothing'",
    "CREATE TABLE #.end (k int PRIMARY KEY) WITH cdc = true",
)
"""Everything that a driver's listener would hear of, and writes and truncations under each definition."""

WHILE_IT_IS_DEAD = (
    "ALTER KEYSPACE # WITH durable_writes = false",
    "ALTER KEYSPACE # WITH durable_writes = true",
    "TRUNCATE #.t",
    "INSERT INTO #.t (k, d, w) VALUES (6, 1, 7)",
    "DROP TABLE #.t",
    "DROP TYPE #.u",
    "INSERT INTO #.end (k) VALUES (1)",
    "TRUNCATE #.end",
)

TOLD = (
    "type #.u created",
    "table #.t created",
    "table #.t altered: column w int added",
    "table #.t truncated",
    "type #.u altered: field b int added",
    "table #.t altered: column home: frozen<u> has other fields",
    "table #.t altered: key column c renamed to d",
    "table #.t altered: column w dropped",
    "table #.t altered: cdc off",
    "table #.t truncated",
    "table #.t altered: cdc on",
    "table #.t altered: column w int added",
    "table #.end created",
    "keyspace # altered: option durable_writes: true is false now",
    "keyspace # altered: option durable_writes: false is true now",
    "table #.t truncated",
    "table #.t dropped",
    "type #.u dropped",
    "table #.end truncated",
    "table #.end dropped",
    "keyspace # dropped",
)

OPERATIONS = [1, 2, "truncate", 3, 5, "truncate", 6]


def everything(bench: Bench) -> None:
    """The whole script, with kill -9 in the middle; what is told of it, and what is published."""
    with bench.agent as agent:
        agent.until_ready()
        bench.run(*WHILE_IT_RUNS)
        bench.until_told("end created")
        agent.until(lambda: len(bench.operations()) >= 5)
        agent.kill()
    bench.run(*WHILE_IT_IS_DEAD)
    with bench.agent as agent:
        agent.until(lambda: bench.operations("end") == [1, "truncate"])
        causes = agent.status()["degraded"]
        bench.run("DROP KEYSPACE #")
        bench.until_told("keyspace # dropped")
        causes_behind = agent.status()["degraded"].keys()
        assert agent.stop() == 0, agent.words()
    assert causes == {}
    assert causes_behind <= {"selection"}  # the settings name a keyspace that is gone
    assert bench.words() == list(TOLD)
    events = bench.events()
    assert [event.position for event in events] == sorted(event.position for event in events)
    assert len({event.digest for event in events}) == len(events)
    assert {event.inferred for event in events} == {False}
    assert bench.operations() == OPERATIONS
    truncations = [record for record in bench.records() if record.change.op is Op.TRUNCATE]
    assert [record.partition for record in truncations] == [0, 1, 2, 0, 1, 2]
    times = [event.written for event in events if event.kind is EventKind.TRUNCATED]
    for record in truncations:
        source, deletion = record.change.source, record.change.deletion
        assert source is not None
        assert deletion is not None
        assert (record.key, record.change.key, source.index, source.count, source.flags) == (None, None, 0, 1, 0)
        assert partition(record.change.token, 3) == record.partition
        assert deletion.written in (times[0], times[2])
    assert len({record.change.digest for record in truncations}) == 2
    told = list(dict.fromkeys(event.digest.hex() for event in bench.all_events()))
    lines = bench.agent.command("tail", "--schema-changes", "--from-beginning", "--max", str(len(told)))
    assert [json.loads(line)["digest"] for line in lines.splitlines()] == told


@pytest.mark.promise("agent.schema-events", "agent.truncation-everywhere")
def test_everything_that_a_listener_would_hear_of(cassandra: LocalCassandra, bench_of: BenchOf) -> None:
    """Keyspaces, types and tables that are created, altered and dropped, and truncations: once, in the log's order."""
    with cql(cassandra) as session:
        everything(bench_of(session, cassandra))


@pytest.mark.promise("agent.truncation-everywhere")
@pytest.mark.long
def test_truncations_in_segments_without_cdc_data(cassandra: LocalCassandra, bench_of: BenchOf) -> None:
    """Such a segment never has an index: published when everything before it was, and from the cluster's word, marked,
    where the segment was gone before anybody read it."""
    with cql(cassandra) as session:
        bench = bench_of(session, cassandra)
        bench.run("CREATE TABLE #.t (k int PRIMARY KEY) WITH cdc = true", "INSERT INTO #.t (k) VALUES (1)")
        with bench.agent as agent:
            agent.until(lambda: bench.operations() == [1])
            roll_over(session, cassandra, bench.keyspace)
            bench.run("TRUNCATE #.t")
            roll_over(session, cassandra, bench.keyspace)
            agent.until(lambda: bench.operations() == [1, "truncate"])
            assert agent.stop() == 0
        roll_over(session, cassandra, bench.keyspace)
        bench.run("TRUNCATE #.t")
        last = roll_over(session, cassandra, bench.keyspace)
        for path in cassandra.cdc_raw.glob("*.log"):
            if int(path.stem.rpartition("-")[2]) <= last and not path.with_name(f"{path.stem}_cdc.idx").exists():
                path.unlink(missing_ok=True)
        bench.run("INSERT INTO #.t (k) VALUES (2)")
        with bench.agent as agent:
            agent.until(lambda: bench.operations() == [1, "truncate", "truncate", 2])
            assert agent.stop() == 0
    truncations = [event for event in bench.events() if event.kind is EventKind.TRUNCATED]
    assert [event.inferred for event in truncations] == [False, True]
    found = [one for one in bench.records() if one.change.op is Op.TRUNCATE]
    assert [one.change.source and one.change.source.flags for one in found] == [0, 0, 0] + 3 * [SCHEMA_INFERRED]


@pytest.mark.promise("agent.metadata-epoch")
@pytest.mark.long
@pytest.mark.parametrize("release", ["4.0", "6.0"])
def test_everything_on_other_versions(means: Means, tmp_path: Path, release: str, bench_of: BenchOf) -> None:
    """The same, on a node of its own."""
    if means is Means.CONTAINERS:
        pytest.skip("the versions are run as child processes")
    with LocalCassandra(tmp_path / "node", CassandraSettings(release=release)) as node, cql(node) as session:
        bench = bench_of(session, node)
        checks = bench.agent.command("check", "--only", "cassandra")
        assert ("metadata epochs" in checks) == (release == "6.0")
        everything(bench)
