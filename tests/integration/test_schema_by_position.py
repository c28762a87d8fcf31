"""The schema by position on a real node and a real Kafka: whatever the agent was doing when DDL was logged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tailrace_common.kafka import read_to_end
from tailrace_schemas.change import SCHEMA_INFERRED
from tailrace_schemas.table import Table
from tests.integration.agents import AgentProcess, Published, in_log_order
from tests.integration.bench import Bench, place_of


def keys(records: list[Published]) -> list[int]:
    """Their partition keys, ints."""
    return [int.from_bytes(record.change.key or b"", "big") for record in records]


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """The test's keyspace, whose agents have cdc_raw alone."""
    bench.hide_commitlog()
    return bench


def history(bench: Bench, table: str = "t") -> list[bytes]:
    """The keys of the schema history's records of a table."""
    return [
        record.key or b""
        for partition in range(16)
        for record in read_to_end(bench.config, f"{bench.prefix}.schema-history", partition)
        if f'"keyspace":"{bench.keyspace}","name":"{table}"'.encode() in (record.value or b"")
    ]


SCRIPT = (
    "INSERT INTO #.t (k, c, v) VALUES (1, 1, 'x')",
    "ALTER TABLE #.t ADD w int",
    "INSERT INTO #.t (k, c, v, w) VALUES (2, 1, 'x', 7)",
    "ALTER TABLE #.t DROP w",
    "INSERT INTO #.t (k, c, v) VALUES (3, 1, 'x')",
    "ALTER TABLE #.t ADD w int",
    "INSERT INTO #.t (k, c, w) VALUES (4, 1, 8)",
    "ALTER TABLE #.t RENAME c TO d",
    "INSERT INTO #.t (k, d, v) VALUES (5, 1, 'x')",
    "ALTER TYPE #.u ADD b int",
    "INSERT INTO #.t (k, d, home) VALUES (6, 1, {a: 1, b: 2})",
    "ALTER TABLE #.t WITH cdc = false",
    "INSERT INTO #.t (k, d, v) VALUES (7, 1, 'not published')",
    "ALTER TABLE #.t WITH cdc = true",
    "INSERT INTO #.t (k, d, v) VALUES (8, 1, 'x')",
    "DROP TABLE #.t",
    "CREATE TABLE #.t (k int, text text, PRIMARY KEY (k, text)) WITH cdc = true",
    "INSERT INTO #.t (k, text) VALUES (9, 'y')",
)
"""Every kind of DDL that changes a definition, a write under each."""

EXPECTED = {
    1: ("k c", "home v"),
    2: ("k c", "home v w"),
    3: ("k c", "home v"),
    4: ("k c", "home v w"),
    5: ("k d", "home v w"),
    6: ("k d", "home v w"),
    8: ("k d", "home v w"),
    9: ("k text", ""),
}
"""By partition key: the names of the key columns, and of others, of the definition that it was written under."""


def create(bench: Bench) -> None:
    """The script's table, and one to count in."""
    bench.run("CREATE TYPE #.u (a int)")
    bench.run("CREATE TABLE #.t (k int, c int, v text, home frozen<u>, PRIMARY KEY (k, c)) WITH cdc = true")
    bench.run("CREATE TABLE #.end (k int PRIMARY KEY) WITH cdc = true")


def names(table: Table) -> tuple[str, str]:
    """Names of key columns, and of others."""
    return " ".join(column.name for column in table.key), " ".join(column.name for column in table.columns)


def check(bench: Bench) -> None:
    """Every change is there once, in order, under the definition of its position."""
    records = bench.logged()
    assert keys(records) == list(EXPECTED)
    assert {key: names(one.change.table) for key, one in zip(keys(records), records, strict=True)} == EXPECTED
    fields = {key: one.change.table for key, one in zip(keys(records), records, strict=True) if key in (5, 6)}
    homes = [column.type.fields for table in fields.values() for column in table.regular if column.name == "home"]
    assert homes == [("a",), ("a", "b")]
    assert {one.change.source and one.change.source.flags for one in records} == {0}
    assert in_log_order(bench.records())
    # What it was at first, seven alterations, its end; the other one of that name. An agent that was killed before it
    # could commit its first read begins with a later one, and finds more in the log.
    told = history(bench)
    assert len(set(told)) == len(told)
    count = Counter(key.split(b"/")[1] for key in told)
    assert count.keys() == {str(records[at].change.table.id).encode() for at in (0, -1)}
    assert count[str(records[0].change.table.id).encode()] >= 9


def end(bench: Bench, agent: AgentProcess) -> None:
    """Wait until everything is published, and stop the agent."""
    bench.run("INSERT INTO #.end (k) VALUES (1)")
    agent.until(lambda: len(bench.logged("end")) == 1)
    assert agent.stop() == 0, agent.words()


@pytest.mark.spine
@pytest.mark.promise(
    "agent.definition-of-its-place", "agent.cdc-flag-of-its-place", "others.write-behind-ddl",
    "others.write-behind-cdc-off",
)  # fmt: skip
def test_ddl_while_the_agent_runs(bench: Bench) -> None:
    """As fast as the node takes it; events hurry, and change nothing."""
    create(bench)
    with bench.agent() as agent:
        agent.until_ready()
        for statement in SCRIPT:
            bench.run(statement)
        end(bench, agent)
    check(bench)


@pytest.mark.spine
@pytest.mark.promise("agent.definition-of-its-place", "agent.cdc-flag-of-its-place")
def test_ddl_while_the_agent_is_stopped(bench: Bench) -> None:
    """Its segments are there when it comes back, as they hold changes too."""
    create(bench)
    with bench.agent() as agent:
        agent.until_ready()
        agent.until(until_known(bench, 1))
        assert agent.stop() == 0
        for statement in SCRIPT:
            bench.run(statement)
    with agent:
        end(bench, agent)
    check(bench)


@pytest.mark.promise("agent.definition-of-its-place", "agent.cdc-flag-of-its-place")
@pytest.mark.long
def test_ddl_while_the_agent_is_killed_again_and_again(bench: Bench) -> None:
    """kill -9 behind DDL: what was committed is not read twice, what was not is read again."""
    create(bench)
    agent = bench.agent()
    for statement in SCRIPT:
        if statement.startswith(("ALTER TABLE #.t DROP", "ALTER TYPE", "ALTER TABLE #.t WITH cdc = true", "DROP")):
            with agent:
                agent.until_ready()
                bench.run(statement)
                agent.kill()
        else:
            bench.run(statement)
    with agent:
        end(bench, agent)
    check(bench)


@pytest.mark.promise("agent.definition-of-its-place", "agent.cdc-flag-of-its-place")
@pytest.mark.long
def test_ddl_in_segments_without_cdc_data(bench: Bench) -> None:
    """They have no index and vanish: read while the agent runs, and known after kill -9 when nothing tells of it."""
    create(bench)
    with bench.agent() as agent:
        agent.until_ready()
        bench.run(SCRIPT[0])
        agent.until(lambda: keys(bench.logged()) == [1])
        bench.roll_over()
        seen = len(history(bench))
        for statement in ("ALTER TABLE #.t WITH cdc = false", "ALTER TABLE #.t WITH cdc = true"):
            bench.run(statement)
            seen += 1
            agent.until(until_known(bench, seen))
            bench.roll_over()
            if "false" in statement:
                bench.run("INSERT INTO #.t (k, c, v) VALUES (2, 1, 'not published')")
                bench.roll_over()
        agent.kill()
    bench.roll_over()
    bench.run("INSERT INTO #.t (k, c, v) VALUES (3, 1, 'x')")
    with agent:
        end(bench, agent)
    assert keys(bench.logged()) == [1, 3]


def until_known(bench: Bench, count: int) -> Callable[[], bool]:
    """Whether so many definitions of the table are committed."""
    return lambda: len(history(bench)) >= count


ORDERS_OF_TABLES = ("t plain end", "plain t end", "t end plain", "plain plain2 t end", "plain end plain2 t")


@pytest.mark.promise("agent.mixed-batches")
def test_mixed_batches(bench: Bench) -> None:
    """Tables with cdc and without in one mutation, in any order: all of the cdc part."""
    create(bench)
    for name in ("plain", "plain2"):
        bench.run(f"CREATE TABLE #.{name} (k int PRIMARY KEY, v text)")
    inserts = {
        "t": "INSERT INTO #.t (k, c, v) VALUES (?, 1, 'x')",
        "end": "INSERT INTO #.end (k) VALUES (?)",
        "plain": "INSERT INTO #.plain (k, v) VALUES (?, 'x')",
        "plain2": "INSERT INTO #.plain2 (k, v) VALUES (?, 'x')",
    }
    with bench.agent() as agent:
        agent.until_ready()
        for key, order in enumerate(ORDERS_OF_TABLES):
            batch = "; ".join(inserts[name].replace("?", str(key)) for name in order.split())
            bench.run(f"BEGIN BATCH {batch}; APPLY BATCH")
        agent.until(lambda: agent.count("changes") >= 2 * len(ORDERS_OF_TABLES))
        assert agent.stop() == 0
    of_t, of_end = bench.logged(), bench.logged("end")
    assert keys(of_t) == keys(of_end) == list(range(len(ORDERS_OF_TABLES)))
    for pair in zip(of_t, of_end, strict=True):
        assert len({place_of(one)[:2] for one in pair}) == 1
        assert sorted((place_of(one)[2], one.change.source and one.change.source.count) for one in pair) == [
            (0, 2),
            (1, 2),
        ]


def hidden(bench: Bench, statement: str) -> None:
    """DDL in a segment without cdc data, which is gone from cdc_raw when nobody watches."""
    bench.roll_over()
    bench.run(statement)
    bench.hide_unindexed(bench.roll_over())


@pytest.mark.promise("agent.unread-ddl")
def test_ddl_that_nobody_read_is_placed_by_its_write_time(bench: Bench) -> None:
    """Off and on again in holes of the log, with a column added: what stands between is marked, and all of it told."""
    create(bench)
    with bench.agent() as agent:
        bench.run("INSERT INTO #.t (k, c, v) VALUES (1, 1, 'x')")
        agent.until(lambda: keys(bench.logged()) == [1])
        assert agent.stop() == 0
    hidden(bench, "ALTER TABLE #.t WITH cdc = false")
    bench.run("INSERT INTO #.t (k, c, v) VALUES (2, 1, 'published, perhaps wrongly')")
    bench.run("INSERT INTO #.end (k) VALUES (0)")
    hidden(bench, "ALTER TABLE #.t ADD w int")
    hidden(bench, "ALTER TABLE #.t WITH cdc = true")
    bench.run("INSERT INTO #.t (k, c, w) VALUES (3, 1, 7)")
    with agent:
        agent.until(lambda: keys(bench.logged()) == [1, 2, 3])
        causes = agent.status()["degraded"]
        assert list(causes) == [f"definition of {bench.keyspace}.t"], causes
        assert agent.stop() == 0
    records = bench.logged()
    assert [one.change.source and one.change.source.flags for one in records] == [0, SCHEMA_INFERRED, 0]
    assert [names(one.change.table)[1] for one in records] == ["home v", "home v", "home v w"]
