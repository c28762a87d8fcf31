"""What an operator sees of subscriptions that get nothing, or whose sink refuses rows, on a running server."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

from tailrace.local import LocalCassandra, LocalKafka
from tailrace.local.ports import free_port
from tests import postgres
from tests.integration.agents import cql, create_keyspace
from tests.integration.feed import Feed
from tests.integration.items import LOG
from tests.integration.server.servers import Site

WRITTEN = 1_700_000_000_000_000


def test_what_subscriptions_wait_for_or_have_refused_is_said_in_list_log_and_metrics(
    cassandra: LocalCassandra, kafka: LocalKafka, prefix: str, keyspace_name: str, feed: Feed, tmp_path: Path
) -> None:
    """One of a table without cdc, one of no table, one whose PostgreSQL takes no NUL in a text."""
    with cql(cassandra) as session:
        create_keyspace(session, keyspace_name)
        session.execute(f"CREATE TABLE {keyspace_name}.plain (id int PRIMARY KEY)")
    cluster = {"contact_points": [cassandra.address], "port": cassandra.port}
    port = free_port("127.0.0.1")
    site = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}", {"cluster": cluster}, port=port)
    url = postgres.new_database()
    site.subscribe("waits", f"{keyspace_name}.plain", url)
    site.subscribe("nowhere", f"{keyspace_name}.nothing", url)
    site.subscribe("refused", "shop.items", url)
    feed.publish([LOG.insert((1,), (), WRITTEN, v="a\0b"), LOG.insert((2,), (), WRITTEN, v="b")])
    with site.server("one") as server:
        alter = f"ALTER TABLE {keyspace_name}.plain WITH cdc = true"
        server.until(lambda: site.states()["waits"]["action"] == alter)
        server.until(lambda: f"no such table: {keyspace_name}.nothing" in str(site.states()["nowhere"]["reason"]))
        server.until(lambda: site.states()["refused"]["letters"] == 1)
        assert site.states()["refused"]["letters_since"] is not None

        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            metrics = answer.read().decode()
        assert f'tailrace_subscription_waiting{{subscription="{keyspace_name}.plain/waits"}} 1.0' in metrics
        assert 'tailrace_subscription_dead_letters{subscription="shop.items/refused"} 1.0' in metrics

        [letter] = site.tailrace("subscriptions", "shop.items/refused", "--letters")
        assert "PostgreSQL" in letter["reason"] or "NUL" in letter["reason"], letter
        assert alter in server.log.read_text()
        assert server.stop() == 0, server.words()
