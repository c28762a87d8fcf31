"""The session of docs/subscriptions.md, command by command: two real servers, of which one is killed in a snapshot."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from tailrace.cli.main import complete
from tests.integration.server.servers import Site
from tests.integration.server.test_snapshots import site_of
from tests.integration.snapshot.following import Place
from tests.unit.spark.sinks.contract import Database

PAGE = Path(__file__).resolve().parents[3] / "docs" / "subscriptions.md"
COUNT = 200
_SECONDS = 900


def session(keyspace: str) -> Iterator[list[str]]:
    """The commands of the page that a test runs, on a keyspace of its own."""
    block = re.search(r"<!-- run by \S+ -->\n\n```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        # The keyspace has a table by which the agent is seen to be ready, and the filter does not fit it.
        words = line.removeprefix("$ ").replace("shop.*", f"{keyspace}.items*").replace("shop.", f"{keyspace}.")
        yield shlex.split(words)


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
            (directory / f"{name}.url").write_text(f"{url}\n")

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


@pytest.mark.long
@pytest.mark.promise("subscription.take-over", "subscription.snapshot")
@pytest.mark.timeout(3600)
def test_the_session(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    copies, site = Copies(place, tmp_path), site_of(place, tmp_path, rows_per_second=20)
    with ExitStack() as stack:
        servers = [stack.enter_context(site.server(name)) for name in ("first", "second")]
        for number, words in enumerate(session(place.keyspace)):
            if words[0] == "kill":
                servers[0].until(lambda: ranges(site) >= 2, _SECONDS)
                victim = owner(site, servers[0].process.pid)
                servers[victim].kill()
                read, survivor = ranges(site), servers[1 - victim]
                copies.insert(COUNT, COUNT + 20)
                copies.delete(3, 30, COUNT + 3)
                survivor.until(lambda: ranges(site) > read, _SECONDS)  # noqa: B023 - it is called here
                survivor.until(lambda: copies.equal("warehouse") and copies.equal("lake", 10), _SECONDS)
                continue
            rows = ran(words)
            if words[1] == "subscriptions" and number < 3:
                assert {row["name"]: row["state"] for row in rows} == {"lake": "active", "warehouse": "active"}
            if words[1] == "subscriptions" and len(words) == 3 and words[2].endswith("/warehouse"):
                [table] = rows[0]["snapshots"]
                assert (table["table"], table["rows"] > 0) == (f"{place.keyspace}.items", True)
                assert rows[0]["partitions"]
            if "--audit" in words:
                assert [row["operation"] for row in rows] == [
                    "reset", "resume", "alter", "pause", "subscribe", "subscribe"
                ]  # fmt: skip
        survivor.until(lambda: is_left(site, "lake"), _SECONDS)
        copies.insert(COUNT + 20, COUNT + 21)
        survivor.until(lambda: copies.equal("warehouse"), _SECONDS)
        survivor.until(lambda: site.states()["warehouse"]["stage"] == "log", _SECONDS)
        assert copies.equal("warehouse")
        assert survivor.stop() == 0, survivor.words()
    assert (COUNT + 20, f"v{COUNT + 20}") not in copies.values("lake")  # it was cancelled before
    copies.close()


def ranges(site: Site) -> int:
    """How many ranges of the warehouse's snapshot are done."""
    with site.operations() as operations:
        return sum(int(table["ranges"]) for table in operations.details("warehouse")["snapshots"])


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
