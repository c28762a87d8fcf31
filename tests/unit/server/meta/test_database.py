"""Leases by the clock of the meta database: years behind the workers' own, it passes only where the test says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.delivery import PartitionProgress
from tailrace_server.model.subscription import LostLeaseError
from tests.support.clock import ManualClock
from tests.support.meta_database import by
from tests.unit.server.requests import CLUSTER, request

LEASE = 60.0
MILLENNIUM = 946_684_800.0  # in 2000
PROGRESS = {("t", 0): PartitionProgress(7)}
pytestmark = pytest.mark.promise("subscription.one-owner")


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    """SQLite's clock."""
    manual = ManualClock(MILLENNIUM)
    with by(lambda: manual.now):
        yield manual


@pytest.fixture
def url(clock: ManualClock, tmp_path: Path) -> str:
    """A SQLite file's, with that clock."""
    del clock
    return f"sqlite:///{tmp_path / 'meta.db'}"


@pytest.fixture(autouse=True)
def _subscription(subscriptions: Subscriptions) -> None:
    subscriptions.subscribe(request(), "an operator")


@pytest.mark.promise("subscription.one-owner")
def test_a_lease_lasts_for_its_time_from_its_last_renewal(database: MetaDatabase, clock: ManualClock) -> None:
    left, right = (Leases(database, CLUSTER, name, LEASE) for name in ("left", "right"))
    [claim] = left.claim(1)
    for renew in (lambda: left.renew(1), left.keep):
        clock.wait(LEASE)
        renew()
    clock.wait(LEASE)
    left.save(claim, PROGRESS)
    assert right.claim(1) == []

    clock.wait(0.001)
    with pytest.raises(LostLeaseError):
        left.save(claim, PROGRESS)
    assert left.renew(1) == {}
    [taken] = right.claim(1)
    clock.wait(LEASE)
    right.save(taken, PROGRESS)
    clock.wait(0.001)
    with pytest.raises(LostLeaseError):
        right.save(taken, PROGRESS)


@pytest.mark.promise("subscription.one-owner")
def test_a_worker_counts_for_a_lease_from_its_last_sign_of_life(
    database: MetaDatabase, subscriptions: Subscriptions, clock: ManualClock
) -> None:
    for name in "ab":
        subscriptions.subscribe(request(name), "an operator")
    left, right = (Leases(database, CLUSTER, name, LEASE) for name in ("left", "right"))
    left.renew(0, room=100)
    assert left.portion(100) == 3
    right.renew(0, room=100)
    clock.wait(LEASE)
    assert right.portion(100) == 2
    left.renew(0, room=100)
    clock.wait(0.001)
    assert left.portion(100) == 3
