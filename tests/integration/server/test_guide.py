"""The session of docs/subscriptions.md, command by command: a server is killed, and a node joins, in a snapshot."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tailrace.cluster import LiveCluster
from tailrace.local import LocalKafka
from tests.integration.agents import contact_of_node, cql, create_keyspace
from tests.integration.rings import NODE, LiveRing
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.server.snapshots import site_of, tables
from tests.integration.snapshot.following import Place
from tests.services.choice import Means
from tests.unit.spark.sinks.contract import Database

PAGE = Path(__file__).resolve().parents[3] / "docs" / "subscriptions.md"
KEYSPACE = "shop"
COUNT = 200
MORE = 3000
"""Rows that are there before a node joins: enough to be read for as long as a node takes to join."""
TOKENS = (-(2**62), 2**62)
JOINING_TOKEN = 7 * 2**60
"""Late in the ring, so that a snapshot has not come to it when the node has joined."""
_SECONDS = 900


def session() -> Iterator[list[str]]:
    """The commands of the page that a test runs."""
    block = re.search(r"<!-- run by \S+ -->\n\n```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        yield shlex.split(line.removeprefix("$ "), comments=True)


class Copies:
    """A table of Cassandra, and what the sinks of the session have of it."""

    def __init__(self, place: Place, directory: Path) -> None:
        self._place = place
        place.run("CREATE TABLE KS.items (id int PRIMARY KEY, v text)")
        self.insert(0, COUNT)  # before there is a log of it
        place.run("ALTER TABLE KS.items WITH cdc = true")
        self.stores = {}
        for name in ("warehouse", "lake"):
            self.stores[name] = Database(url := f"sqlite:///{directory / f'{name}.db'}", sa.create_engine(url))

    def insert(self, first: int, end: int) -> None:
        for number in range(first, end):
            self._place.run(f"INSERT INTO KS.items (id, v) VALUES ({number}, 'v{number}')")

    def delete(self, *numbers: int) -> None:
        for number in numbers:
            self._place.run(f"DELETE FROM KS.items WHERE id = {number}")

    def values(self, name: str) -> list[tuple[int, str]]:
        """What a sink has."""
        database, table = self.stores[name], f"{self._place.keyspace}_items"
        return sorted(database.select(f"SELECT id, v FROM {table}")) if table in database.names() else []

    def equal(self, name: str, least: int = 0) -> bool:
        """Whether it is what SELECT answers, from an id on."""
        rows = sorted((row.id, row.v) for row in self._place.run("SELECT id, v FROM KS.items"))
        return self.values(name) == [row for row in rows if row[0] >= least]

    def close(self) -> None:
        for database in self.stores.values():
            database.engine.dispose()


@pytest.fixture
def ring(means: Means, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[LiveRing]:
    """A cluster of one node, which another one can join."""
    if means is Means.CONTAINERS:
        pytest.skip("the nodes are run as child processes")
    with ExitStack() as stack:
        ring = LiveRing(tmp_path, kafka, prefix, {KEYSPACE: 1}, stack)
        ring.add_node(replace(NODE, tokens=TOKENS))
        yield ring


@pytest.fixture
def place(ring: LiveRing, kafka: LocalKafka, prefix: str, tmp_path: Path) -> Iterator[Place]:
    """The keyspace `shop` of that cluster."""
    [node] = ring.nodes
    with (
        cql(node) as cassandra,
        closing(LiveCluster(contact_of_node(node))) as live,
    ):
        create_keyspace(cassandra, KEYSPACE)
        yield Place(cassandra, node, kafka, live, prefix, KEYSPACE, None, tmp_path)


@pytest.mark.long
@pytest.mark.promise("subscription.take-over", "subscription.snapshot", "snapshots.resumes")
@pytest.mark.timeout(3600)
def test_the_session(tmp_path: Path, ring: LiveRing, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copies = Copies(place, tmp_path)
    ring.add_agent(place.node)
    ring.until_covered(1)
    site = site_of(place, tmp_path, rows_per_second=20)
    for name, store in copies.stores.items():
        site.declare(name, {"type": "sql", "url": store.url})
    with ExitStack() as stack:
        servers = [stack.enter_context(site.server(name, both=True)) for name in ("first", "second")]
        for words in session():
            match words:
                case ["kill", *_]:
                    servers[0].until(lambda: ranges(site) >= 2, _SECONDS)
                    victim = owner(site, servers[0].worker)
                    os.kill(servers[victim].worker, signal.SIGKILL)
                    assert servers[victim].ended() == 1
                    read, survivor = ranges(site), servers[1 - victim]
                    copies.insert(COUNT, COUNT + 20)
                    copies.delete(3, 30, COUNT + 3)
                    survivor.until(lambda: ranges(site) > read, _SECONDS)  # noqa: B023 - it is called here
                    survivor.until(lambda: copies.equal("warehouse") and copies.equal("lake", 10), _SECONDS)
                case ["systemctl", *_]:
                    snapshot = join(ring, site, survivor, copies)
                case ["tailrace", "subscriptions"]:
                    assert {row["name"]: row["state"] for row in ran(words)} == {
                        "lake": "active",
                        "warehouse": "active",
                    }
                case ["tailrace", "subscriptions", "--audit"]:
                    assert [row["operation"] for row in ran(words)] == [
                        "reset", "resume", "alter", "pause", "subscribe", "subscribe"
                    ]  # fmt: skip
                case ["tailrace", "subscriptions", name]:
                    [row] = ran(words)
                    [table] = row["snapshots"]
                    assert (table["table"], table["rows"] > 0) == (f"{KEYSPACE}.items", True)
                    assert row["partitions"]
                    if name == "lake":
                        assert (table["id"], table["state"]) == (snapshot, "reading")
                case ["tailrace", "reset", *_]:
                    copies.insert(COUNT + 20, MORE)
                    survivor.until(lambda: copies.equal("lake", 10), _SECONDS)
                    ran(words)
                case ["tailrace", "cancel", *_]:
                    survivor.until(lambda: tables(site, "lake")[0]["state"] == "done", _SECONDS)
                    assert tables(site, "lake")[0]["id"] == snapshot
                    survivor.until(lambda: copies.equal("warehouse") and copies.equal("lake", 10), _SECONDS)
                    ran(words)
                case _:
                    ran(words)
        survivor.until(lambda: is_left(site, "lake"), _SECONDS)
        copies.insert(MORE + 20, MORE + 21)
        survivor.until(lambda: copies.equal("warehouse"), _SECONDS)
        survivor.until(lambda: site.states()["warehouse"]["stage"] == "log", _SECONDS)
        assert copies.equal("warehouse")
        assert survivor.stop() == 0, survivor.words()
    assert (MORE + 20, f"v{MORE + 20}") not in copies.values("lake")  # it was cancelled before
    copies.close()


def join(ring: LiveRing, site: Site, server: ServerProcess, copies: Copies) -> str:
    """A second node takes over ranges of a snapshot that is under way, and its agent starts; the snapshot's id.

    Returns while a range is read that ends, or begins, where the new node's does.
    """

    def under_way() -> bool:
        return any(table["state"] == "reading" and table["ranges"] > 0 for table in tables(site, "lake"))

    server.until(under_way, _SECONDS)
    [before] = tables(site, "lake")
    ring.add_agent(ring.add_node(replace(NODE, tokens=(JOINING_TOKEN,)), streams=True))
    ring.until_covered(2)
    copies.insert(MORE, MORE + 20)  # about a third of them come by the new node's agent alone
    copies.delete(*range(100, 130))

    def splits() -> bool:
        [table] = tables(site, "lake")
        assert table["state"] == "reading", "the snapshot ended before the node had joined"
        return any(JOINING_TOKEN in token_range for token_range in table["reading"])

    server.until(splits, _SECONDS)
    return str(before["id"])


def ranges(site: Site) -> int:
    """How many ranges of the warehouse's snapshot are done."""
    return sum(int(table["ranges"]) for table in tables(site, "warehouse"))


def is_left(site: Site, name: str) -> bool:
    """Whether no worker has a cancelled subscription any more: until then it may write."""
    with site.operations() as operations:
        [row] = [row for row in operations.all(cancelled=True) if row["name"] == name]
    return row["state"] == "cancelled" and row["owner"] is None


def owner(site: Site, first: int) -> int:
    """Which server runs the warehouse: 0 where it is that of a process id, else 1."""
    return 0 if str(site.states()["warehouse"]["owner"]).split(":")[1] == str(first) else 1


def ran(words: list[str]) -> list[dict[str, Any]]:
    """What a command of the session prints; it has to end well."""
    answer = CliRunner().invoke(complete(), words[1:], prog_name="tailrace", catch_exceptions=False)
    assert answer.exit_code == 0, f"{words}: {answer.output}"
    return [json.loads(line) for line in answer.stdout.splitlines()]
