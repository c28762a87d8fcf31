"""Subscriptions to a table that has rows already, on real workers: one is killed in the middle of its ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace_common.kafka import TopicReader
from tailrace_schemas.topics import table_topic
from tailrace_server.operations.asking import Asked
from tests.integration.server.servers import ServerProcess, Site
from tests.integration.snapshot.following import KEYS, ROWS, Place, Writes
from tests.integration.test_kafka_sink import Topics
from tests.oracle.comparison import Downstream
from tests.postgres import new_database
from tests.unit.spark.sinks.change_log_contract import place_of

# Pages small enough, and slow enough, that a worker is killed in the middle.
_SLOW = {"consistency": "ONE", "ranges": 32, "page_rows": 5, "concurrent_ranges": 1, "rows_per_second": 40}


_SECONDS = 900  # of a machine that has more to do


def site_of(
    place: Place,
    directory: Path,
    *,
    url: str | None = None,
    authentication: bool = True,
    share_reading: bool = False,
    **snapshot: object,
) -> Site:
    """For the place's cluster, with a meta database of its own unless a URL names one."""
    sections = place.sections("unused")
    more = {"cluster": sections["cluster"], "tables": sections["tables"], "snapshot": {**_SLOW, **snapshot}}
    url = url or f"sqlite:///{directory / 'meta.db'}"
    more_of_server = {"snapshot": "initial", "authentication": authentication, "share_reading": share_reading}
    return Site(directory, place.kafka, place.prefix, url, more, **more_of_server)


def tables(site: Site, name: str) -> list[dict[str, Any]]:
    """How far the snapshots of a subscription are."""
    with site.operations() as operations:
        return list(operations.details(name)["snapshots"])


def places_of(records: Iterable[Mapping[str, Any]]) -> set[tuple[str, int, int]]:
    """Where changes of Kafka's sink come from."""
    return {place_of(record) for record in records}


def published(place: Place, name: str) -> set[tuple[str, int, int]]:
    """All that a read_committed reader finds in a table's topic."""
    topic = table_topic(place.prefix, place.keyspace, name, place.table(name).id)
    with TopicReader({"bootstrap.servers": place.kafka.bootstrap}, topic, beginning=True) as reader:
        return {(topic, partition, record.offset) for partition, record in reader.read_to_end()}


def until(site: Site, server: ServerProcess, name: str, met: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait for the progress of the one table's snapshot."""
    server.until(lambda: any(met(table) for table in tables(site, name)), _SECONDS)
    return tables(site, name)[0]


@pytest.mark.long
@pytest.mark.promise("subscription.snapshot")
@pytest.mark.timeout(3600)
def test_another_worker_goes_on_at_the_range(place: Place, tmp_path: Path) -> None:
    place.create("taken")
    name, store = f"{place.keyspace}.taken", Downstream(new_database())
    site = site_of(place, tmp_path)
    site.subscribe("warehouse", name, store.url)
    events = Topics(place.kafka)
    with site.operations() as operations:
        out = f"{events.prefix}-out.{{table}}"
        sink = {"type": "kafka", "topic": out, "dead_letters": events.target.dead_letters, "kafka": events.config}
        operations.subscribe(Asked(table=name, name="events", sink=sink))
    with site.server("killed") as killed, Writes(place, "taken", pause=0.1) as writes:
        before = until(site, killed, "warehouse", lambda table: table["ranges"] >= 2)
        killed.kill()
        assert before["state"] == "reading"
        counted = writes.count
        with site.server("heir") as heir:
            going_on = until(site, heir, "warehouse", lambda table: table["ranges"] > before["ranges"])
            assert going_on["id"] == before["id"]  # and not another one from the beginning
            assert going_on["rows"] >= before["rows"] > 0
            with site.operations() as operations:
                details = operations.details("warehouse")
            assert (details["stage"], 0 < details["snapshot_percent"] < 100) == ("snapshot", True)
            assert details["snapshots"][0]["seconds_left"] is not None
            done = until(site, heir, "warehouse", lambda table: table["state"] == "done")
            assert writes.count > counted
            writes.end()
            place.until_equal(store, "taken", _SECONDS)
            until(site, heir, "events", lambda table: table["state"] == "done")
            heir.until(lambda: places_of(events.records()) >= published(place, "taken"), _SECONDS)
            assert heir.stop() == 0, heir.words()
    # A row is read once, but for the one round that was under way.
    assert KEYS * ROWS * 0.5 < done["rows"] < KEYS * ROWS * 1.3
    assert (done["percent"], done["reading"], done["seconds_left"]) == (100.0, [], None)
    assert site.states()["warehouse"]["stage"] == "log"
    records = events.records()
    log = [record for record in records if "@" not in record["topic"]]
    assert len(places_of(records)) == len(records)  # each change, and each row, once
    assert places_of(log) == published(place, "taken")
    assert len(records) - len(log) >= KEYS * ROWS * 0.5
    assert list(events.dead_letters()) == []
    store.close()


@pytest.mark.long
@pytest.mark.promise("subscription.snapshot")
@pytest.mark.timeout(3600)
def test_a_snapshot_alone_a_reset_and_the_log_afterwards(place: Place, tmp_path: Path) -> None:
    place.create("alone")
    name, store = f"{place.keyspace}.alone", Downstream(new_database())
    site = site_of(place, tmp_path, rows_per_second=1000, page_rows=50)
    with site.server("worker") as server:
        with site.operations() as operations:
            url = {"type": "sql", "url": store.url}
            operations.subscribe(asked(name, url, "only"))
        server.until(lambda: site.states()["copy"]["state"] == "done", _SECONDS)
        assert site.owners() == {None}
        place.until_equal(store, "alone", _SECONDS)
        place.run("INSERT INTO KS.alone (k, c, v) VALUES (1, 1, 'later')")
        site.tailrace("reset", "copy", "--snapshot")
        server.until(lambda: site.states()["copy"]["state"] == "done", _SECONDS)
        place.until_equal(store, "alone", _SECONDS)
        place.run("DELETE FROM KS.alone WHERE k = 1")
        [altered] = site.tailrace("alter", "copy", "--snapshot", "initial")
        assert (altered["state"], altered["stage"]) == ("active", "log")
        place.until_equal(store, "alone", _SECONDS)
        first = tables(site, "copy")[0]["id"]
        site.tailrace("reset", "copy", "--snapshot")
        again = until(site, server, "copy", lambda table: table["state"] == "done")
        assert again["id"] != first
        place.until_equal(store, "alone", _SECONDS)
        assert server.stop() == 0, server.words()
    store.close()


def asked(table: str, sink: dict[str, Any], snapshot: str) -> Asked:
    """A request for a copy of a table."""
    return Asked(table=table, name="copy", sink=sink, stream={"snapshot": snapshot})
