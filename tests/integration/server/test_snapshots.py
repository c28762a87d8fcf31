"""Subscriptions to a table that has rows already, on real workers: one is killed in the middle of its ranges."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace_server.operations.asking import Asked
from tests.integration.letters import letters_in
from tests.integration.server.snapshots import SECONDS, places_of, published, site_of, tables, until
from tests.integration.snapshot.following import KEYS, ROWS, Place, Writes
from tests.integration.topics import Topics
from tests.oracle.comparison import Downstream
from tests.postgres import new_database


@pytest.mark.long
@pytest.mark.promise("subscription.snapshot")
@pytest.mark.timeout(3600)
def test_another_worker_goes_on_at_the_range(place: Place, tmp_path: Path) -> None:
    place.create("taken")
    name, store = f"{place.keyspace}.taken", Downstream(new_database())
    site = site_of(place, tmp_path)
    site.subscribe("warehouse", name, store.url)
    events = Topics(place.kafka)
    out = f"{events.prefix}-out.{{table}}"
    kafka = {"type": "kafka", "topic": out, "kafka": events.config}
    target = site.declare("events", kafka)
    with site.operations() as operations:
        operations.subscribe(Asked(table=name, name="events", target=target))
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
            place.until_equal(store, "taken", SECONDS)
            until(site, heir, "events", lambda table: table["state"] == "done")
            heir.until(lambda: places_of(events.records()) >= published(place, "taken"), SECONDS)
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
    assert letters_in(place.kafka, place.prefix) == []
    store.close()


@pytest.mark.long
@pytest.mark.promise("subscription.snapshot")
@pytest.mark.timeout(3600)
def test_a_snapshot_alone_a_reset_and_the_log_afterwards(place: Place, tmp_path: Path) -> None:
    place.create("alone")
    name, store = f"{place.keyspace}.alone", Downstream(new_database())
    site = site_of(place, tmp_path, rows_per_second=1000, page_rows=50)
    site.subscribe("copy", name, store.url, stream={"snapshot": "only"})
    with site.server("worker") as server:
        server.until(lambda: site.states()["copy"]["state"] == "done", SECONDS)
        assert site.owners() == {None}
        place.until_equal(store, "alone", SECONDS)
        place.run("INSERT INTO KS.alone (k, c, v) VALUES (1, 1, 'later')")
        site.tailrace("reset", "copy", "--snapshot")
        server.until(lambda: site.states()["copy"]["state"] == "done", SECONDS)
        place.until_equal(store, "alone", SECONDS)
        place.run("DELETE FROM KS.alone WHERE k = 1")
        [altered] = site.tailrace("alter", "copy", "--snapshot", "initial")
        assert (altered["state"], altered["stage"]) == ("active", "log")
        place.until_equal(store, "alone", SECONDS)
        first = tables(site, "copy")[0]["id"]
        site.tailrace("reset", "copy", "--snapshot")
        again = until(site, server, "copy", lambda table: table["state"] == "done")
        assert again["id"] != first
        place.until_equal(store, "alone", SECONDS)
        assert server.stop() == 0, server.words()
    store.close()
