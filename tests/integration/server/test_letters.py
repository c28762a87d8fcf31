"""Dead letters of a subscription on a real Kafka: `tailrace subscriptions NAME --letters`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.local import LocalKafka
from tailrace_common.settings import load_settings
from tailrace_server.cli.opening import opened
from tailrace_server.meta.leases import Leases
from tailrace_server.model.delivery import News
from tailrace_server.operations.asking import Asked
from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tests.integration.feed import Feed
from tests.integration.letters import letters_in, topic_of
from tests.integration.server.servers import Site
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

REFERENCE = "shop.items/warehouse"
ITEMS = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="items")


@pytest.fixture
def site(kafka: LocalKafka, prefix: str, tmp_path: Path) -> Site:
    """With a subscription whose worker has counted three letters, as of a batch that came again; there are two."""
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}")
    target = site.declare("copy", {"type": "sql", "url": f"sqlite:///{tmp_path / 'copy.db'}"})
    with site.operations() as operations:
        operations.subscribe(Asked(table="shop.items", name="warehouse", target=target, where="id > 1"))
    with opened(load_settings(site.config, {})) as (database, _):
        leases = Leases(database, prefix, "worker", 60)
        [claim] = leases.claim(1)
        leases.save(claim, {}, News(letters=3))
        leases.release(claim)
    with closing(Feed(kafka.bootstrap, prefix)) as feed:
        values = [feed.add(ITEMS).value(Log(ITEMS).insert((number,), (), 10, v="late")) for number in (1, 2)]
    topic_of(kafka, prefix, claim.subscription.sink_name).put(
        [
            DeadLetter(RecordId("t", 0, offset), "no such type", value)
            for offset, value in zip((7, 9), values, strict=True)
        ]
    )
    return site


def details(site: Site) -> dict[str, Any]:
    with site.operations() as operations:
        return dict(operations.details(REFERENCE))


@pytest.mark.promise("sinks.dead-letters")
def test_a_command_lists_and_replays_them_and_corrects_their_count(
    site: Site, kafka: LocalKafka, prefix: str, tmp_path: Path
) -> None:
    """Through the subscription's filter."""
    assert details(site)["letters"] == 3
    listed = site.tailrace("subscriptions", REFERENCE, "--letters")
    assert [(row["offset"], row["reason"]) for row in listed] == [(7, "no such type"), (9, "no such type")]
    assert details(site)["letters"] == 2
    site.tailrace("subscriptions", REFERENCE, "--letters", "--replay")
    assert (details(site)["letters"], details(site)["letters_since"]) == (0, None)
    assert letters_in(kafka, prefix) == []
    assert database_of(tmp_path).select("SELECT id, v FROM shop_items") == [(2, "late")]


def database_of(directory: Path) -> Database:
    return Database(f"sqlite:///{directory / 'copy.db'}")
