"""`tailrace cancel --drop-target` on a real worker: tables and topics go, those of others stay."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from tailrace.local import LocalKafka
from tailrace_common.kafka.topics import TopicMaker
from tailrace_common.settings import settings_from
from tailrace_server.operations.asking import Asked
from tailrace_spark.sinks.files.reader import CommittedFiles
from tailrace_spark.sinks.registry import sink_of
from tests.integration.feed import Feed
from tests.integration.items import ITEMS, LOG
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.topics import Topics
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.contract import Database
from tests.unit.tables import table

OTHERS = table({"id": "int"}, regular={"v": "text"}, keyspace="shop", name="others", table_id=UUID(int=7))
_SECONDS = 900  # of a machine that has more to do


@pytest.mark.promise("subscription.target-dropped")
@pytest.mark.parametrize(("form", "endings"), [("change", ("",)), ("debezium", ("", ".static"))])
def test_topics_of_a_sink_are_deleted(kafka: LocalKafka, tmp_path: Path, form: str, endings: tuple[str, ...]) -> None:
    prefix, config = f"d{uuid4().hex[:10]}", {"bootstrap.servers": kafka.bootstrap}
    sink = {"type": "kafka", "topic": f"{prefix}-out.{{keyspace}}.{{table}}", "kafka": config, "format": form}
    sink |= {"images": f"sqlite:///{tmp_path}/images.db"} if form == "debezium" else {}
    settings, topics = settings_from({"kafka": config, "sink": {"events": sink}}, "test"), TopicMaker(config)
    own = [f"{prefix}-out.shop.{ITEMS.name}{ending}" for ending in endings]
    for name in (*own, f"{prefix}-out.shop.other"):
        topics.ensure(name, 2, {})
    with closing(sink_of(settings, "events")) as opened:
        droppable = opened.capabilities.droppable
        assert droppable is not None
        assert list(droppable.drop([ITEMS])) == own
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


@pytest.mark.long
@pytest.mark.promise("subscription.target-dropped")
@pytest.mark.timeout(2400)
def test_files_are_dropped_and_written_again(tmp_path: Path, kafka: LocalKafka, prefix: str) -> None:
    """What an earlier subscription has written of another table stays, in the same place."""
    site, feed = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"), Feed(kafka.bootstrap, prefix)
    feed.announce()
    feed.publish([Log(OTHERS).insert((7,), (), 1_000_000, v="other")])
    feed.publish([LOG.insert((number,), (), 2_000_000, v="a") for number in range(20)])
    root = tmp_path / "files"
    files = CommittedFiles.at(str(root))
    with site.server("worker") as server:
        subscribe_files(site, root, "shop.others", "earlier")
        server.until(lambda: len(list(files.records())) == 1, _SECONDS)
        site.tailrace("cancel", "earlier", "--yes")
        others = contents(root)
        subscribe_files(site, root, "shop.items", "copy")
        server.until(lambda: len(list(files.records("shop.items"))) == 20, _SECONDS)
        written = list(files.records("shop.items"))
        dropped = asked_again(site, server, "cancel", "copy", "--drop-target", "--yes")
        assert (dropped["state"], dropped["dropped"]) == ("cancelled", ["shop.items"])
        assert (contents(root), list(files.records("shop.items"))) == (others, [])
        assert [record["table"] for record in files.records()] == ["shop.others"]
        subscribe_files(site, root, "shop.items", "again")
        server.until(lambda: len(list(files.records("shop.items"))) == 20, _SECONDS)
        assert by_place(files.records("shop.items")) == by_place(written)
        assert contents(root) > others
        assert server.stop() == 0, server.words()
    feed.close()


def subscribe_files(site: Site, root: Path, table: str, name: str) -> None:
    """A subscription into JSON lines."""
    sink = {"type": "files", "path": str(root), "format": "jsonl", "compress": False}
    with site.operations() as operations:
        operations.subscribe(Asked(table=table, name=name, sink=sink))


def contents(root: Path) -> set[tuple[str, str]]:
    """The lines of all files of tables, with the directory of their table."""
    directories = [directory for directory in root.iterdir() if directory.name != "_tailrace"]
    return {
        (directory.name, line)
        for directory in directories
        for file in directory.rglob("*.jsonl")
        for line in file.read_text().splitlines()
    }


def by_place(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """In the order of their places in Kafka."""
    return sorted(records, key=lambda record: (record["topic"], record["partition"], record["offset"]))


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
