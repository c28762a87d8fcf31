"""Subscriptions on real workers: a kill -9, a take-over, a sick sink, and what operators do meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.local import LocalKafka
from tests import postgres
from tests.integration.feed import Feed
from tests.integration.items import Load, Source, is_through, rows
from tests.integration.server.servers import Site
from tests.unit.spark.sinks.contract import Database, databases

DOWN = "postgresql://nobody:secret@127.0.0.1:1/nothing"


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[dict[str, Database]]:
    """Empty ones, by the name of their subscriber."""
    urls = {"left": f"sqlite:///{tmp_path / 'left.db'}", "right": postgres.new_database()}
    with databases(urls.values()) as opened:
        yield dict(zip(urls, opened, strict=True))


@pytest.mark.spine
@pytest.mark.promise("subscription.take-over", "subscription.isolated")
@pytest.mark.timeout(600)
def test_another_worker_takes_over_and_a_sick_sink_harms_nobody(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed, stores: dict[str, Database]
) -> None:
    """Two workers, one is killed with -9 under load; a third subscription's sink does not answer all the while."""
    site, source = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"), Source(3)
    for name, database in stores.items():
        site.subscribe(name, "shop.items", database.url)
    site.subscribe("sick", "shop.*", DOWN)
    with ExitStack() as stack:
        first = stack.enter_context(site.server("first"))
        with Load(feed, source, seconds=0.5):
            first.until(lambda: all(rows(database) for database in stores.values()))
            second = stack.enter_context(site.server("second"))
            second.until(lambda: len(site.owners() - {None}) == 2)  # they share
            first.kill()
            heir = f":{second.process.pid}:"
            second.until(lambda: all(heir in str(site.states()[name]["owner"]) for name in stores))
        feed.publish(source.last())
        for database in stores.values():
            second.until(lambda database=database: is_through(database))  # type: ignore[misc]  # mypy cannot infer it
            assert rows(database) == source.rows()
        second.until(lambda: site.states()["sick"]["state"] == "failing")
        states = site.states()
        assert [states[name]["state"] for name in stores] == ["active", "active"]
        assert "127.0.0.1" in states["sick"]["reason"]
        assert states["sick"]["action"].startswith("Start the database or fix its address.")
        assert "secret" not in second.log.read_text() + str(states)
        assert second.stop() == 0, second.words()
    assert site.owners() == {None}
