"""A pattern with a filter that one of its tables lacks the columns for: the others go on, and it says why."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration
from tests.integration.feed import Feed
from tests.integration.server.servers import Site
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

ORDERS = table({"country": "text"}, {"id": "int"}, regular={"v": "text"}, keyspace="shop", name="orders")
OTHER_ID = UUID("3be43760-e57f-11f1-8599-73518cff440e")
ITEMS = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="items", table_id=OTHER_ID)


@pytest.fixture
def feed(feed: Feed) -> Feed:
    """One with a generation and both tables."""
    feed.publish([Log(ITEMS).insert((7,), (), 2_000_000, v="i"), Log(ORDERS).insert(("DE",), (1,), 2_000_000, v="o"),
                  Log(ORDERS).insert(("FR",), (2,), 2_000_000, v="o")])  # fmt: skip
    return feed


def ids(database: Database, name: str) -> list[int]:
    return [row[0] for row in database.select(f"SELECT id FROM {name} ORDER BY id")] if name in database.names() else []


@pytest.mark.long
@pytest.mark.promise("subscription.checked")
@pytest.mark.timeout(600)
def test_a_table_that_does_not_fit_is_left_out_and_comes_once_it_fits(
    tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed
) -> None:
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    copy, site = (
        Database(url, sa.create_engine(url)),
        Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"),
    )
    target = site.declare("copy", {"type": "sql", "url": url})
    answer = site.run("subscribe", "shop.*", "--name", "lake", "--target", target, "--where", "country = 'DE'")
    assert answer.returncode == 0, answer.stderr
    assert "where, in part: shop.items will be left out" in answer.stderr
    with site.server("worker") as server, site.operations() as operations:
        server.until(lambda: ids(copy, "shop_orders") == [1])
        details = operations.details("lake")
        assert details["state"] == "active"
        assert list(details["left_out"]) == ["shop.items"]
        assert "country" in details["left_out"]["shop.items"]
        assert {row["topic"] for row in details["partitions"]} == {feed.topic(ORDERS)}
        assert "shop_items" not in copy.names()
        operations.alter("lake", Alteration(where="id > 0"))
        server.until(lambda: ids(copy, "shop_items") == [7])
        assert operations.details("lake")["left_out"] == {}
        operations.alter("lake", Alteration(where="nobody = 1"), check=False)
        server.until(lambda: operations.details("lake")["state"] == "failing")  # of no table can it be asked
        assert "nobody" in operations.details("lake")["reason"]
        assert server.stop() == 0, server.words()
    copy.engine.dispose()


@pytest.mark.usefixtures("feed")
def test_all_of_a_request_is_kept_unchecked(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}")
    target = site.declare("x", {"type": "sql", "url": "sqlite:///x.db"})
    words = ("shop.items", "--name", "w", "--target", target, "--where", "v = 'x'")
    refused = site.run("subscribe", *words)
    assert (refused.returncode, "v is not of the key of shop.items" in refused.stderr) == (2, True)
    assert site.tailrace("subscribe", *words, "--unchecked")[0]["state"] == "active"
    with site.operations() as operations:
        asked = Asked(table="shop.item", name="x", target=target)
        operations.subscribe(asked)  # nothing was published of it yet, which is no fault
