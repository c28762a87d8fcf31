"""`tailrace cancel --drop-target` on a real worker: tables and topics go, those of others stay."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import settings_from
from tailrace_server.operations.asking import Asked
from tailrace_spark.sinks.registry import sink_of
from tests.integration.feed import Feed
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.test_kafka_sink import Topics
from tests.integration.test_stream_kills import ITEMS, LOG
from tests.unit.spark.sinks.contract import Database

_SECONDS = 900  # of a machine that has more to do


@pytest.mark.promise("subscription.target-dropped")
def test_topics_of_a_sink_are_deleted(kafka: LocalKafka) -> None:
    prefix, config = f"d{uuid4().hex[:10]}", {"bootstrap.servers": kafka.bootstrap}
    sink = {"type": "kafka", "topic": f"{prefix}-out.{{keyspace}}.{{table}}", "kafka": config}
    settings, topics = settings_from({"kafka": config, "sink": {"events": sink}}, "test"), TopicMaker(config)
    for name in (ITEMS.name, "other"):
        topics.ensure(f"{prefix}-out.shop.{name}", 2, {})
    with closing(sink_of(settings, "events")) as opened:
        droppable = opened.capabilities.droppable
        assert droppable is not None
        assert list(droppable.drop([ITEMS])) == [f"{prefix}-out.shop.items"]
        assert list(droppable.drop([ITEMS])) == []
    assert [name for name in topics.partitions() if name.startswith(prefix)] == [f"{prefix}-out.shop.other"]


@pytest.mark.long
@pytest.mark.promise("subscription.target-dropped")
@pytest.mark.timeout(2400)
def test_what_was_written_is_dropped(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    url, site = f"sqlite:///{tmp_path / 'copy.db'}", Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}")
    copy, events, feed = Database(url, sa.create_engine(url)), Topics(kafka), Feed(kafka.bootstrap, prefix)
    feed.announce()
    feed.publish([LOG.insert((1,), (), 2_000_000, v="a")])
    site.subscribe("copy", "shop.items", url)
    topic = f"{events.prefix}-out.{ITEMS.name}"
    sink = {"type": "kafka", "topic": f"{events.prefix}-out.{{table}}", "dead_letters": events.target.dead_letters,
            "kafka": events.config}  # fmt: skip
    with site.operations() as operations:
        operations.subscribe(Asked(table="shop.items", name="events", sink=sink))
    with site.server("worker") as server:
        server.until(lambda: "shop_items" in copy.names() and bool(events.records()), _SECONDS)
        refused = site.run("cancel", "copy", "--drop-target")
        assert (refused.returncode, "give --yes if that is meant" in refused.stderr) == (2, True)
        dropped = asked_again(site, server, "cancel", "copy", "--drop-target", "--yes")
        assert (dropped["state"], dropped["dropped"]) == ("cancelled", ["shop_items"])
        assert [name for name in copy.names() if name.startswith("shop_")] == []
        dropped = asked_again(site, server, "sql", "DROP SUBSCRIPTION events WITH TARGET")
        assert dropped["dropped"] == [topic]
        assert events.records() == []
        site.subscribe("again", "shop.items", url)
        server.until(lambda: "shop_items" in copy.names(), _SECONDS)
        assert copy.select("SELECT id, v FROM shop_items") == [(1, "a")]
        assert server.stop() == 0, server.words()
    feed.close()
    copy.engine.dispose()


def asked_again(site: Site, server: ServerProcess, *words: str) -> dict[str, Any]:
    """What a command prints, which is to be given again while a worker is still at a batch."""
    answers: list[dict[str, Any]] = []

    def done() -> bool:
        answer = site.run(*words)
        assert answer.returncode == 0 or "is still at a batch: ask again" in answer.stderr, answer.stderr
        answers.extend(map(json.loads, answer.stdout.splitlines()))
        return bool(answers)

    server.until(done, _SECONDS)
    return answers[0]
