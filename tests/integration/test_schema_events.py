"""DDL and TRUNCATE on a real node and Kafka: told in `.schema-changes`, truncations in the tables' topics too."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tailrace.history.events import EventKind, SchemaEvent, decode_event
from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tailrace_common.kafka import read_to_end
from tailrace_schemas.change import SCHEMA_INFERRED, TRUNCATED_LATE, Op
from tailrace_schemas.tokens import partition
from tests.integration.agents import AgentProcess
from tests.integration.bench import Bench


class Told(Bench):
    """With what is told of its keyspace."""

    def events(self) -> list[SchemaEvent]:
        """What `.schema-changes` has of the keyspace."""
        helpers = ("instant", "filler")
        return [one for one in self.all_events() if one.keyspace == self.keyspace and one.name not in helpers]

    def all_events(self) -> list[SchemaEvent]:
        """Everything in it, as it was appended: also what other tests' DDL left in the log."""
        records = read_to_end(self.config, f"{self.prefix}.schema-changes", 0)
        return [decode_event(record.value or b"")[1] for record in records]

    def words(self) -> list[str]:
        """The same for people, the keyspace as #."""
        return [str(event).replace(self.keyspace, "#") for event in self.events()]

    def until_told(self, agent: AgentProcess, word: str) -> None:
        """Wait until an event of the agent says it."""
        agent.until(lambda: any(word in one for one in self.words()))

    def operations(self, table: str = "t") -> list[object]:
        """Keys of what was written, and "truncate" once for all partitions, in the order of the log."""
        found: list[object] = []
        for record in self.logged(table):
            if record.change.op is not Op.TRUNCATE:
                found.append(int.from_bytes(record.change.key or b"", "big"))
            elif record.partition == 0:
                found.append("truncate")
        return found


Begun = Callable[[LocalCassandra], AbstractContextManager[Told]]


@pytest.fixture
def told_of(kafka: LocalKafka, prefix: str, keyspace_name: str, tmp_path: Path) -> Begun:
    """The test's keyspace on a node; agents have cdc_raw alone."""

    @contextmanager
    def begun(cassandra: LocalCassandra) -> Iterator[Told]:
        with Told.begun(cassandra, kafka, prefix, keyspace_name, tmp_path) as told:
            told.hide_commitlog()
            yield told

    return begun


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


def everything(told: Told, agent: AgentProcess) -> None:
    """The whole script, with kill -9 in the middle; what is told of it, and what is published."""
    with agent:
        agent.until_ready()
        told.run(*WHILE_IT_RUNS)
        told.until_told(agent, "end created")
        agent.until(lambda: len(told.operations()) >= 5)
        agent.kill()
    told.run(*WHILE_IT_IS_DEAD)
    with agent:
        agent.until(lambda: told.operations("end") == [1, "truncate"])
        causes = agent.status()["degraded"]
        told.run("DROP KEYSPACE #")
        told.until_told(agent, "keyspace # dropped")
        causes_behind = agent.status()["degraded"].keys()
        assert agent.stop() == 0, agent.words()
    assert causes == {}
    assert causes_behind <= {"selection"}  # the settings name a keyspace that is gone
    assert told.words() == list(TOLD)
    events = told.events()
    assert [event.position for event in events] == sorted(event.position for event in events)
    assert len({event.digest for event in events}) == len(events)
    assert {event.inferred for event in events} == {False}
    assert told.operations() == OPERATIONS
    truncations = [record for record in told.logged() if record.change.op is Op.TRUNCATE]
    assert [record.partition for record in truncations] == [0, 1, 2, 0, 1, 2]
    times = [event.written for event in events if event.kind is EventKind.TRUNCATED]
    for record in truncations:
        source, deletion = record.change.source, record.change.deletion
        assert source is not None
        assert deletion is not None
        assert (record.key, record.change.key, source.index, source.count) == (None, None, 0, 1)
        # The one while it was dead: of a place whose segment the agent had released by then nobody knows any more.
        assert source.flags in (0, TRUNCATED_LATE if deletion.written == times[2] else 0)
        assert partition(record.change.token, 3) == record.partition
        assert deletion.written in (times[0], times[2])
    assert len({record.change.digest for record in truncations}) == 2
    digests = list(dict.fromkeys(event.digest.hex() for event in told.all_events()))
    lines = agent.command("tail", "--schema-changes", "--from-beginning", "--max", str(len(digests)))
    assert [json.loads(line)["digest"] for line in lines.splitlines()] == digests


@pytest.mark.promise("agent.schema-events", "agent.truncation-everywhere")
def test_everything_that_a_listener_would_hear_of(cassandra: LocalCassandra, told_of: Begun) -> None:
    """Keyspaces, types and tables that are created, altered and dropped, and truncations: once, in the log's order."""
    with told_of(cassandra) as told:
        everything(told, told.agent())


@pytest.mark.promise("agent.truncation-everywhere")
@pytest.mark.long
def test_truncations_in_segments_without_cdc_data(cassandra: LocalCassandra, told_of: Begun) -> None:
    """Such a segment never has an index: published when everything before it was, and from the cluster's word, marked,
    where the segment was gone before anybody read it."""
    with told_of(cassandra) as told:
        agent = told.agent()
        told.run("CREATE TABLE #.t (k int PRIMARY KEY) WITH cdc = true", "INSERT INTO #.t (k) VALUES (1)")
        with agent:
            agent.until(lambda: told.operations() == [1])
            told.roll_over()
            told.run("TRUNCATE #.t")
            told.roll_over()
            agent.until(lambda: told.operations() == [1, "truncate"])
            assert agent.stop() == 0
        told.roll_over()
        told.run("TRUNCATE #.t")
        told.hide_unindexed(told.roll_over())
        told.run("INSERT INTO #.t (k) VALUES (2)")
        with agent:
            agent.until(lambda: told.operations() == [1, "truncate", "truncate", 2])
            assert agent.stop() == 0
    truncations = [event for event in told.events() if event.kind is EventKind.TRUNCATED]
    assert [event.inferred for event in truncations] == [False, True]
    found = [one for one in told.logged() if one.change.op is Op.TRUNCATE]
    assert [one.change.source and one.change.source.flags for one in found] == [0, 0, 0] + 3 * [SCHEMA_INFERRED]


@pytest.mark.promise("agent.metadata-epoch")
@pytest.mark.long
@pytest.mark.parametrize("release", ["4.0", "6.0"])
@pytest.mark.usefixtures("as_processes")
def test_everything_on_other_versions(tmp_path: Path, release: str, told_of: Begun) -> None:
    """The same, on a node of its own."""
    with LocalCassandra(tmp_path / "node", CassandraSettings(release=release)) as node, told_of(node) as told:
        agent = told.agent()
        checks = agent.command("check", "--only", "cassandra")
        assert ("metadata epochs" in checks) == (release == "6.0")
        everything(told, agent)
