"""Servers of the last version and of this one on one meta database, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests.integration.feed import Feed
from tests.integration.letters import letters_in
from tests.integration.server.servers import Site
from tests.integration.upgrades.commands import subscribe
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

ITEMS = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="items")
LOG = Log(ITEMS)
WRITTEN = 5_000_000


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.promise("upgrade.installation")
def test_a_new_server_takes_over_what_an_old_one_ran(
    former: tuple[str, ...],
    kafka: LocalKafka,
    prefix: str,
    feed: Feed,
    new_url: Callable[[str], str],
    tmp_path: Path,
) -> None:
    """The meta database and the copy are of one kind. The new server brings the tables up to date, and says that the
    subscription names no target; once it does, it goes on."""
    site = Site(tmp_path, kafka, prefix, new_url("meta"))
    url = new_url("copy")
    database = Database(url, sa.create_engine(url))

    def publish(*ids: int) -> None:
        feed.publish([LOG.insert((number,), (), WRITTEN, v=f"of {number}") for number in ids])

    def shows(count: int) -> bool:
        expected = [(number, f"of {number}") for number in range(count)]
        return "shop_items" in database.names() and database.select("SELECT id, v FROM shop_items") == expected

    publish(0, 1)
    (tmp_path / "url").write_text(f"{url}\n")
    subscribe(site, former, "shop.items", "copy", "--type", "sql", "-o", f"url_file={tmp_path / 'url'}")
    with site.server("former", program=former) as old:
        old.until(lambda: shows(2))
        assert old.stop() == 0, old.words()
    target = site.declare("copy", {"type": "sql", "url": url})
    publish(2)
    with site.server("now") as new:
        new.until(lambda: "there is no [sink." in site.states()["copy"]["reason"])
        site.tailrace("alter", "copy", "--target", target)
        new.until(lambda: shows(3))
        assert new.stop() == 0, new.words()
    assert site.states()["copy"]["state"] == "active"
    assert letters_in(kafka, prefix) == []
    database.engine.dispose()
