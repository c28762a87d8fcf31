"""The session of docs/subscriptions.md, command by command, on two real servers, one of which is killed."""

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
from tailrace.local import LocalKafka
from tests.integration.feed import Feed
from tests.integration.server.servers import Site
from tests.integration.test_stream_kills import ITEMS, LOG
from tests.unit.spark.sinks.contract import Database

PAGE = Path(__file__).resolve().parents[3] / "docs" / "subscriptions.md"
COUNT = 20


def session() -> Iterator[list[str]]:
    """The commands of the page that a test runs."""
    block = re.search(r"<!-- run by \S+ -->\n\n```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block is not None
    for line in block[1].splitlines():
        yield shlex.split(line.removeprefix("$ "))


def values(database: Database) -> list[tuple[int, str]]:
    return sorted(database.select("SELECT id, v FROM shop_items")) if "shop_items" in database.names() else []


@pytest.mark.long
@pytest.mark.promise("subscription.take-over")
def test_the_session(tmp_path: Path, kafka: LocalKafka, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    feed, site = Feed(kafka.bootstrap, prefix), Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}")
    feed.announce()
    stores = {}
    for name in ("warehouse", "lake"):
        stores[name] = Database(url := f"sqlite:///{tmp_path / f'{name}.db'}", sa.create_engine(url))
        (tmp_path / f"{name}.url").write_text(f"{url}\n")
    everything = [(number, f"v{number}") for number in range(COUNT)]
    large = [row for row in everything if row[0] >= 10]
    with ExitStack() as stack:
        servers = [stack.enter_context(site.server(name)) for name in ("first", "second")]
        for number, words in enumerate(session()):
            if words[0] == "kill":
                feed.publish([LOG.insert((key,), (), 1000 + key, v=f"v{key}") for key in range(COUNT // 2)])
                servers[1].until(lambda: values(stores["warehouse"]) == everything[: COUNT // 2])
                servers[0].kill()
                feed.publish([LOG.insert((key,), (), 1000 + key, v=f"v{key}") for key in range(COUNT // 2, COUNT)])
                servers[1].until(lambda: values(stores["warehouse"]) == everything)
                servers[1].until(lambda: values(stores["lake"]) == large)
                continue
            rows = ran(words)
            if words[1] == "subscriptions" and number < 3:
                assert {row["name"]: row["state"] for row in rows} == {"lake": "active", "warehouse": "active"}
            if words[1:] == ["subscriptions", "shop.items/warehouse"]:
                assert {partition["topic"] for partition in rows[0]["partitions"]} == {feed.topic(ITEMS)}
            if "--audit" in words:
                assert [row["operation"] for row in rows] == [
                    "reset", "resume", "alter", "pause", "subscribe", "subscribe"
                ]  # fmt: skip
        feed.publish([LOG.insert((COUNT,), (), 5000, v="last")])
        servers[1].until(lambda: values(stores["warehouse"]) == [*everything, (COUNT, "last")])
        assert servers[1].stop() == 0, servers[1].words()
    assert values(stores["lake"]) == large  # it was cancelled before
    for database in stores.values():
        database.engine.dispose()
    feed.close()


def ran(words: list[str]) -> list[dict[str, Any]]:
    """What a command of the session prints; it has to end well."""
    answer = CliRunner().invoke(complete(), words[1:], prog_name="tailrace", catch_exceptions=False)
    assert answer.exit_code == 0, f"{words}: {answer.output}"
    return [json.loads(line) for line in answer.stdout.splitlines()]
