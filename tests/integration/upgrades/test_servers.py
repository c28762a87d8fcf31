"""Servers of the last version and of this one on one meta database, beside each other and one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tests.integration.feed import Feed
from tests.integration.server.servers import Site
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
    former: tuple[str, ...], kafka: LocalKafka, prefix: str, feed: Feed, tmp_path: Path
) -> None:
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}")
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    database = Database(url, sa.create_engine(url))

    def publish(*ids: int) -> None:
        feed.publish([LOG.insert((number,), (), WRITTEN, v=f"of {number}") for number in ids])

    def shows(count: int) -> bool:
        expected = [(number, f"of {number}") for number in range(count)]
        return "shop_items" in database.names() and database.select("SELECT id, v FROM shop_items") == expected

    publish(0, 1)
    url_file = tmp_path / "url"
    url_file.write_text(f"{url}\n")
    words = ("subscribe", "shop.items", "--name", "copy", "--type", "sql", "-o", f"url_file={url_file}")
    command = [sys.executable, *former, *words, "-c", str(site.config)]
    subprocess.run(command, cwd=tmp_path, env=dict(os.environ), check=True, timeout=120)
    with site.server("former", program=former) as old:
        old.until(lambda: shows(2))
        with site.server("now") as new:
            new.until(lambda: f": subscriptions of {prefix} in" in new.words())
            publish(2)
            old.until(lambda: shows(3))
            assert old.stop() == 0, old.words()
            publish(3)
            new.until(lambda: shows(4))
            assert new.stop() == 0, new.words()
    assert site.states()["copy"]["state"] == "active"
    assert database.select("SELECT * FROM tailrace_dead_letters") == []
    database.engine.dispose()
