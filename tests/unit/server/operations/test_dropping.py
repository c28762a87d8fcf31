"""What a subscription has written is dropped once nobody runs it, and only where no other one writes there too."""

from __future__ import annotations

from functools import partial

import pytest

from tailrace_common.settings import Settings
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.errors import ConflictError, RefusedRequestError
from tailrace_server.model.subscription import State, Subscription
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.dropping import drop_target, require_droppable
from tailrace_server.operations.operations import DirectOperations
from tailrace_spark.sinks.registry import SINKS
from tests.unit.server.requests import CLUSTER, request


def made(subscriptions: Subscriptions, name: str, table: str = "shop.orders") -> Subscription:
    return subscriptions.subscribe(request(name, table), "test")[0]


@pytest.mark.promise("subscription.target-dropped")
def test_nothing_is_dropped_while_a_worker_has_it(subscriptions: Subscriptions, database: MetaDatabase) -> None:
    one = made(subscriptions, "w")
    leases = Leases(database, CLUSTER, "worker", 60)
    [claim] = leases.claim(1)
    waits: list[float] = []
    with pytest.raises(ConflictError, match="is paused now, but its worker is still at a batch"):
        drop_target(subscriptions, Settings(), "test", one, waits.append)
    assert len(waits) > 10
    assert subscriptions.get(one.id).state is State.PAUSED
    assert subscriptions.is_run(one.id)
    leases.release(claim)
    assert not subscriptions.is_run(one.id)


@pytest.mark.promise("subscription.target-dropped")
def test_a_worker_that_has_it_is_seen(subscriptions: Subscriptions, database: MetaDatabase) -> None:
    one = made(subscriptions, "w")
    assert not subscriptions.is_run(one.id)
    Leases(database, CLUSTER, "lapsed", -1).claim(1)
    assert not subscriptions.is_run(one.id)
    Leases(database, CLUSTER, "worker", 60).claim(1)
    assert subscriptions.is_run(one.id)


@pytest.mark.promise("subscription.target-dropped")
def test_what_others_write_into_is_not_dropped(subscriptions: Subscriptions) -> None:
    one, pattern, apart = (
        made(subscriptions, "w"),
        made(subscriptions, "all", "shop.*"),
        made(subscriptions, "x", "a.b"),
    )
    existing = subscriptions.all(CLUSTER)
    for subscription in (one, pattern):
        with pytest.raises(ConflictError, match=r"writes into postgresql://host/d too: cancel that first"):
            require_droppable(subscription, existing)
    require_droppable(apart, existing)
    subscriptions.change(pattern.id, "cancel", "test", transitions.cancelled)
    require_droppable(one, subscriptions.all(CLUSTER))


def test_sinks_that_cannot_are_refused_before_anything_changes(subscriptions: Subscriptions) -> None:
    operations = DirectOperations(
        subscriptions, Settings(), "test", drop=partial(drop_target, wait=list[float]().append)
    )
    sink = {"type": "http", "url": "https://example.com/changes"}
    operations.subscribe(Asked(table="shop.orders", name="h", sink=sink))
    with pytest.raises(
        RefusedRequestError,
        match=r"a sink of type http cannot drop what it has written into .*; sql, log-tables, cassandra, kafka",
    ):
        operations.cancel("h", drop_target=True)
    assert operations.details("h")["state"] == "active"
    droppable = ["sql", "log-tables", "cassandra", "kafka", "files", "delta", "iceberg", "opensearch"]
    assert [name for name, kind in SINKS.items() if kind.droppable] == droppable


def test_it_is_cancelled_once_that_is_done(subscriptions: Subscriptions) -> None:
    def drop(_subscriptions: Subscriptions, _settings: Settings, who: str, subscription: Subscription) -> list[str]:
        return [f"{who}, {subscription.reference}"]

    operations = DirectOperations(subscriptions, Settings(), "test", drop=drop)
    made(subscriptions, "w")
    answer = operations.cancel("w", drop_target=True)
    assert (answer["state"], answer["dropped"]) == ("cancelled", ["test, shop.orders/w"])
    assert operations.audit(None, 1)[0]["operation"] == "cancel and drop target"
