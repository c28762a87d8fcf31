"""An operator's day in rounds: DDL and writes of all kinds beside one agent, and what that costs.

TAILRACE_TEST_ROUNDS says how many rounds (default: 6); a round takes some ten seconds. The table that is printed has a
line for each round: what was written, and the agent's CPU, log and transactions meanwhile.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from cassandra.cluster import Session
from cassandra.query import BatchStatement, BatchType

from tailrace.local import CassandraSettings, LocalCassandra, LocalKafka
from tests.integration.agents import AgentProcess, cql, create_keyspace, ints, published, settings_for
from tests.support.waiting import until

ROUNDS: Final = int(os.environ.get("TAILRACE_TEST_ROUNDS", "6"))
PATIENT: Final = {f"{kind}_request_timeout": "60s" for kind in ("read", "write", "truncate")}
FLUSHING: Final = CassandraSettings(yaml={"memtable_heap_space": "16MiB", **PATIENT})
FILLERS: Final = 3_000
LINES_AT_REST: Final = 5
"""What an agent may log while it looks fifty times and finds nothing."""


@dataclass
class Operator:
    """Runs statements, and keeps how often each key of each table with cdc was written."""

    session: Session
    written: dict[str, Counter[int]] = field(default_factory=dict)
    next_key: int = 0

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement)

    def new_keys(self, number: int) -> list[int]:
        """Keys that no row has yet."""
        self.next_key += number
        return list(range(self.next_key - number, self.next_key))

    def insert(self, table: str, number: int, *, logged: bool, using: str = "") -> list[int]:
        """So many rows of (id, v) with new keys; their keys. `logged`: the table has cdc now."""
        keys = self.new_keys(number)
        for key in keys:
            self.session.execute(f"INSERT INTO {table} (id, v) VALUES ({key}, 'v{key}') {using}")
        if logged:
            self.count(table, keys)
        return keys

    def change(self, table: str, key: int, statement: str) -> None:
        """A statement that changes this partition of a table with cdc, in one row or range."""
        self.session.execute(statement.format(table=table, key=key))
        self.count(table, [key])

    def count(self, table: str, keys: Sequence[int]) -> None:
        self.written.setdefault(table, Counter()).update(keys)

    def fill(self, table: str) -> None:
        """Rows of a table without cdc, until segments of the log are flushed and deleted."""
        insert = self.session.prepare(f"INSERT INTO {table} (id, v) VALUES (?, ?)")
        for start in range(0, FILLERS, 40):
            rows = BatchStatement(BatchType.UNLOGGED)
            for key in range(start, start + 40):
                rows.add(insert, (key, "x" * 1000))
            self.session.execute(rows)

    @property
    def changes(self) -> int:
        return sum(keys.total() for keys in self.written.values())


@dataclass(frozen=True)
class Sample:
    """The agent's sums since its start."""

    seconds: float
    cpu: float
    lines: int
    kilobytes: int
    transactions: int
    changes: int


@pytest.mark.timeout(1200 + 60 * ROUNDS)
def test_ddl_and_writes_of_all_kinds_beside_an_agent(kafka: LocalKafka, prefix: str, tmp_path: Path) -> None:
    """Each change once, never degraded, no segment released twice, and a log that grows with the DDL alone."""
    with LocalCassandra(tmp_path / "node", FLUSHING) as node, cql(node) as session:
        create_keyspace(session, "shop")
        session.execute("CREATE TYPE shop.place (street text, number int)")
        operator = Operator(session)
        with AgentProcess(tmp_path, settings_for(node, kafka, prefix)) as agent:
            agent.until_ready()
            samples = [sample(agent)]
            for number in range(ROUNDS):
                one_round(operator, number)
                agent.until(lambda: agent.count("changes") >= operator.changes)
                agent.until(lambda: agent.status()["degraded"] == {})
                samples.append(sample(agent))
                sys.stdout.write(line_of(samples[-2], samples[-1]))

            looks, lines = agent.count("all_published"), samples[-1].lines
            until(lambda: agent.count("all_published") > looks + 50, "fifty looks", 120)
            at_rest = sample(agent).lines - lines
            assert agent.stop() == 0
            words = agent.log.read_text()

        for table, keys in operator.written.items():
            assert ints(published(kafka, prefix, f"{prefix}.{table}")) == keys, table
        released = Counter(line.rpartition("released segment ")[2] for line in words.splitlines() if "released" in line)
        assert max(released.values()) == 1
        assert at_rest <= LINES_AT_REST, words.splitlines()[-at_rest:]
        grown = [after.lines - before.lines for before, after in pairwise(samples)]
        assert max(grown) <= 3 * median(grown), grown


def one_round(operator: Operator, number: int) -> None:
    """Tables come, change and go, each written to at once behind its DDL."""
    plain, dark, wide = f"shop.plain{number}", f"shop.dark{number}", f"shop.wide{number}"
    operator.run(f"CREATE TABLE {dark} (id int PRIMARY KEY, v text)")
    operator.fill(dark)
    operator.run(f"CREATE TABLE {plain} (id int PRIMARY KEY, v text) WITH cdc = true")
    operator.insert(plain, 50, logged=True)
    operator.insert(plain, 10, logged=True, using="USING TTL 3600")
    operator.insert(plain, 10, logged=True, using="USING TIMESTAMP 1700000000000000")
    operator.run(f"ALTER TABLE {plain} ADD extra int")
    for key in operator.insert(plain, 10, logged=True):
        operator.change(plain, key, "UPDATE {table} SET extra = 1 WHERE id = {key}")
        operator.change(plain, key, "DELETE FROM {table} WHERE id = {key}")

    operator.run(f"ALTER TABLE {plain} DROP extra", f"ALTER TABLE {plain} WITH cdc = false")
    operator.insert(plain, 50, logged=False)
    operator.run(f"ALTER TABLE {plain} WITH cdc = true")
    operator.insert(plain, 50, logged=True)

    edits(operator, wide)
    counters = f"shop.counters{number}"
    operator.run(f"CREATE TABLE {counters} (id int PRIMARY KEY, hits counter)")
    for key in range(20):
        operator.run(f"UPDATE {counters} SET hits = hits + 1 WHERE id = {key}")

    first, second = operator.new_keys(2)
    rows = [f"INSERT INTO {plain} (id, v) VALUES ({key}, 'b')" for key in (first, second)]
    operator.run(f"BEGIN BATCH {'; '.join(rows)}; APPLY BATCH")
    operator.count(plain, (first, second))
    operator.change(plain, first, "UPDATE {table} SET v = 'c' WHERE id = {key} IF v = 'b'")

    operator.run("CREATE KEYSPACE side WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
    operator.run("CREATE TABLE side.t (id int PRIMARY KEY, v text) WITH cdc = true")
    operator.insert("side.t", 50, logged=True)
    operator.run("DROP KEYSPACE side")
    operator.fill(dark)
    operator.run(f"TRUNCATE {dark}", f"DROP TABLE {dark}", f"DROP TABLE {counters}")
    if number:
        operator.run(f"DROP TABLE shop.plain{number - 1}", f"DROP TABLE shop.wide{number - 1}")


def edits(operator: Operator, wide: str) -> None:
    """Static columns, collections, user types, removals of cells, ranges and partitions; a key that is renamed."""
    columns = "id int, c int, s text STATIC, tags set<text>, notes map<int, text>, steps list<int>, home frozen<place>"
    operator.run(f"CREATE TABLE {wide} ({columns}, PRIMARY KEY (id, c)) WITH cdc = true")
    of_row = (
        "UPDATE {table} SET tags = tags + {{'a'}}, notes[1] = 'n', steps = steps + [1, 2] WHERE id = {key} AND c = 1",
        "UPDATE {table} SET home = {{street: 'High', number: 3}} WHERE id = {key} AND c = 1",
        "UPDATE {table} SET s = 'static' WHERE id = {key}",
        "DELETE notes[1] FROM {table} WHERE id = {key} AND c = 1",
        "DELETE FROM {table} WHERE id = {key} AND c > 3 AND c < 9",
    )
    for key in operator.new_keys(10):
        for statement in of_row:
            operator.change(wide, key, statement)
    operator.run(f"ALTER TABLE {wide} RENAME c TO place")
    operator.change(wide, key, "DELETE FROM {table} WHERE id = {key} AND place = 1")
    operator.change(wide, key, "DELETE FROM {table} WHERE id = {key}")


def sample(agent: AgentProcess) -> Sample:
    """What the agent has used and logged so far."""
    ticks = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(") ")[2].split()[11:13]
    text = agent.log.read_bytes()
    return Sample(
        time.monotonic(),
        sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
        text.count(b"\n"),
        len(text) >> 10,
        agent.count("transactions"),
        agent.count("changes"),
    )


def line_of(before: Sample, after: Sample) -> str:
    """What a round has cost."""
    seconds = after.seconds - before.seconds
    return (
        f"{seconds:5.1f} s  {after.changes - before.changes:4} changes  {after.transactions - before.transactions:3} "
        f"transactions  {100 * (after.cpu - before.cpu) / seconds:3.0f} % of a core  {after.lines - before.lines:4} "
        f"lines, {after.kilobytes - before.kilobytes:3} KiB of log at debug\n"
    )
