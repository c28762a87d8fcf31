"""Ranges of a subscription's snapshots, as a worker's stream reads and keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_schemas.errors import SettingsError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.errors import LostLeaseError
from tailrace_server.worker.snapshots import MetaNotes
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot
from tailrace_spark.snapshot.ranges import TokenRange
from tests.unit.server.requests import CLUSTER, request

TABLE = TableSnapshot(id="x", table="shop.orders", asked=0).begun("t", 1.0, {"topic": {"0": 5}}, 7)
READING = TABLE.planned([(TokenRange(-9, 0),)]).written(10, 100, 2.0, 32).planned([(TokenRange(0, 9),)])


@pytest.fixture
def database(tmp_path: Path) -> Iterator[MetaDatabase]:
    with MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        Subscriptions(database).subscribe(request(), "test")
        yield database


@pytest.mark.promise("subscription.snapshot")
def test_the_next_worker_has_the_ranges_of_the_last_one(database: MetaDatabase) -> None:
    first, second = (Leases(database, CLUSTER, name, 60) for name in ("first", "second"))
    [claim] = first.claim(1)
    notes, value = MetaNotes(first, claim), Snapshots(initial=True, tables=(READING,), sequence=4)
    assert notes.read() == Snapshots()
    notes.write(value)
    first.release(claim)
    [taken] = second.claim(1)
    assert MetaNotes(second, taken).read() == value
    with pytest.raises(LostLeaseError):
        notes.write(value)
    assert notes.requested() == []


def test_what_a_later_version_wrote_is_refused_with_what_to_do(database: MetaDatabase) -> None:
    leases = Leases(database, CLUSTER, "w", 60)
    [claim] = leases.claim(1)
    leases.save_snapshots(claim, '{"version": 99}')
    with pytest.raises(SettingsError, match=r"shop.orders/warehouse: .*version 99.*reset shop.orders/warehouse --snap"):
        MetaNotes(leases, claim).read()


def test_tables_that_could_not_be_read_are_named(database: MetaDatabase) -> None:
    leases = Leases(database, CLUSTER, "w", 60)
    [claim] = leases.claim(1)
    notes = MetaNotes(leases, claim)
    refused = TABLE.over(State.REFUSED, 2.0, "it has counters")
    notes.write(Snapshots(initial=True, tables=(TABLE.over(State.DONE, 2.0), refused)))
    assert notes.complaint == "shop.orders: it has counters"
