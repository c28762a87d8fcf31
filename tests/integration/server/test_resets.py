"""A reset of what keeps each change: what it reads is written again, and so is a topic that was made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tailrace.local import LocalKafka
from tailrace_server.operations.asking import Asked
from tests.integration.feed import Feed
from tests.integration.server.servers import Site
from tests.integration.topics import Topics
from tests.support.waiting import until
from tests.unit.spark.cassandra import Log
from tests.unit.spark.sinks.change_log_contract import PLAIN

Seen = Sequence[tuple[str, int]]
"""The topic of each change's place, and its key."""


@pytest.mark.promise("sinks.read-again")
@pytest.mark.timeout(600)
def test_what_a_reset_reads_is_written(tmp_path: Path, kafka: LocalKafka, prefix: str, feed: Feed) -> None:
    """From earliest, and after a topic was made again: each change once for each reading."""
    site, events, log = Site(tmp_path, kafka, prefix, f"sqlite:///{tmp_path / 'meta.db'}"), Topics(kafka), Log(PLAIN)
    out = {"topic": f"{events.prefix}-out.{{table}}"}
    sinks: Mapping[str, Mapping[str, object]] = {
        "events": {"type": "kafka", "kafka": events.config, **out},
        "lake": {"type": "delta", "path": str(tmp_path / "lake")},
        "directory": {"type": "files", "path": str(tmp_path / "files")},
    }
    seen: Mapping[str, Callable[[], Seen]] = {
        "events": lambda: [(record["topic"], record["key"]["id"]) for record in events.records()],
        "lake": lambda: _rows(DeltaTable(str(tmp_path / "lake" / "shop.plain")).to_pyarrow_dataset()),
        "directory": lambda: _rows(ds.dataset(_own(tmp_path / "files") / "shop.plain", partitioning="hive")),
    }
    topic = feed.topic(PLAIN)

    def publish(*ids: int) -> None:
        feed.publish([log.insert((number,), (), 5_000_000, v="x") for number in ids])

    publish(*range(10))
    for name, sink in sinks.items():
        site.declare(name, sink)
    with site.operations() as operations:
        for name in sinks:
            operations.subscribe(Asked(table="shop.plain", name=name, target=name))
        with site.server("worker") as worker:

            def written(times: int, rows: Callable[[], Seen]) -> bool:
                try:
                    return len(rows()) >= times
                except FileNotFoundError:
                    return False

            for name, rows in seen.items():
                worker.until(lambda rows=rows: written(10, rows))  # type: ignore[misc]  # mypy cannot infer it
                assert sorted(rows()) == [(topic, number) for number in range(10)]
                operations.reset(name, "earliest")
            for rows in seen.values():
                worker.until(lambda rows=rows: written(20, rows))  # type: ignore[misc]
                assert sorted(number for _, number in rows()) == sorted([*range(10)] * 2)
            _make_again(kafka, feed, topic)
            publish(*range(100, 105))
            worker.until(lambda: {row["state"] for row in site.states().values()} == {"failing"})
            for name in sinks:
                operations.reset(name, "earliest")
            for rows in seen.values():
                worker.until(lambda rows=rows: written(25, rows))  # type: ignore[misc]
            publish(200)
            for rows in seen.values():
                worker.until(lambda rows=rows: written(26, rows))  # type: ignore[misc]
                assert sorted(number for _, number in rows()) == sorted([*range(10)] * 2 + [*range(100, 105), 200])
                assert len(set(rows())) == 26
            assert worker.stop() == 0, worker.words()


def _rows(found: ds.Dataset) -> Seen:
    return [(row["topic"], row["key"]["id"]) for row in found.to_table(columns=["topic", "key"]).to_pylist()]


def _own(target: Path) -> Path:
    """The directory of the one subscription into it; none before it has written."""
    return next(target.glob("directory-*"), target)


def _make_again(kafka: LocalKafka, feed: Feed, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 2})
    admin.delete_topics([topic])[topic].result(60)
    until(lambda: topic not in admin.list_topics(timeout=60).topics, f"the end of {topic}")
    feed.make_again(PLAIN)
