"""A value that many ask for: it is read once, and a failure is told to all who waited for it."""

from __future__ import annotations

import re
from functools import partial
from itertools import count
from pathlib import Path
from threading import Thread

import pytest

from tailrace_common.settings import Settings
from tailrace_schemas.errors import ServiceError
from tailrace_server.api.metrics import MOST, OTHERS, ServerMetrics, Shared, SubscriptionMetrics
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.delivery import Delivery, News, PartitionProgress
from tailrace_server.operations.answers import Answer, Kept, answer_of
from tailrace_server.operations.operations import DirectOperations
from tests.support.waiting import until
from tests.unit.server.requests import CLUSTER, request, subscription

A = "shop.orders/a"


def test_what_many_look_at_is_read_once() -> None:
    times, reads = iter([0.0, 1.0, 5.5]), iter(range(10))
    shared = Shared(lambda: next(reads), lambda: next(times))
    assert [shared.get() for _ in range(3)] == [0, 0, 1]


def test_who_has_waited_for_a_failure_is_told_it() -> None:
    """Each would wait as long again, where a database hangs."""
    times, asked, told = count(), list[int](), list[str]()

    def clock() -> float:
        asked.append(next(times))
        return asked[-1]

    def read() -> object:
        other.start()
        until(lambda: len(asked) == 2, "the other one")
        raise ServiceError("it is down")

    def get() -> None:
        try:
            shared.get()
        except ServiceError as error:
            told.append(str(error))

    shared, other = Shared(read, clock), Thread(target=get)
    get()
    other.join()
    assert told == ["it is down"] * 2


def values(text: str, name: str) -> dict[str, float]:
    """By labels, as text."""
    pairs = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return {re.sub(r'(\w+)="([^"]*)"', r"\1=\2", labels): float(value) for labels, value in pairs}


def test_what_workers_keep_is_in_the_metrics(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    metrics = ServerMetrics()
    metrics.watch(DirectOperations(subscriptions, Settings(), "test").all)
    a, b = (subscriptions.subscribe(request(name), "test")[0] for name in "ab")
    subscriptions.change(b.id, "pause", "test", transitions.paused)
    leases = Leases(database, CLUSTER, "the-worker", 60)
    [claim] = leases.claim(1)
    news = News(wrote=True, letters=4136, complete_seconds=120.0)
    leases.save(claim, {("t", 0): PartitionProgress(7, 9)}, news)
    leases.report(claim, lambda stored: transitions.failed(stored, "the sink is down", "start it"))
    text = metrics.text().decode()
    now, deliveries = subscriptions.deliveries([a.id])
    delivery = deliveries[a.id]
    assert values(text, "tailrace_server_meta_database_up") == {"": 1}
    info = values(text, "tailrace_subscription_info")
    assert info == {f"sink=sql,subscription={A},worker=the-worker": 1, "sink=sql,subscription=shop.orders/b,worker=": 1}
    states = values(text, "tailrace_subscription_state")
    assert [name for name, value in states.items() if value] == [
        "state=paused,subscription=shop.orders/b", f"state=failing,subscription={A}",
    ]  # fmt: skip
    assert values(text, "tailrace_subscription_unclaimed") == {f"subscription={A}": 0, "subscription=shop.orders/b": 0}
    assert values(text, "tailrace_subscription_behind_records") == {f"subscription={A}": 2}
    assert values(text, "tailrace_subscription_dead_letters")[f"subscription={A}"] == 4136
    assert 120 <= values(text, "tailrace_subscription_behind_seconds")[f"subscription={A}"] <= 120 + now / 1000
    written = values(text, "tailrace_subscription_written_timestamp_seconds")
    assert written == {f"subscription={A}": (delivery.written or 0) / 1000}
    since = values(text, "tailrace_subscription_dead_letters_timestamp_seconds")
    assert since == {f"subscription={A}": (delivery.letters_since or 0) / 1000}


def test_a_lease_that_has_ended_is_nobody_s(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    metrics = ServerMetrics()
    metrics.watch(DirectOperations(subscriptions, Settings(), "test").all)
    subscriptions.subscribe(request("a"), "test")
    Leases(database, CLUSTER, "killed", -1).claim(1)
    text = metrics.text().decode()
    assert values(text, "tailrace_subscription_unclaimed") == {f"subscription={A}": 1}


def test_only_what_lacks_its_table_waits(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    """Not one whose existing rows are not copied, which has a reason too, and follows the log."""
    metrics = ServerMetrics()
    metrics.watch(DirectOperations(subscriptions, Settings(), "test").all)
    for name in "ab":
        subscriptions.subscribe(request(name), "test")
    leases = Leases(database, CLUSTER, "the-worker", 60)
    waiting, following = leases.claim(2)
    leases.save(following, {("t", 0): PartitionProgress(9, 9)})
    for claim, reason in ((waiting, "shop.orders has no cdc"), (following, "existing rows are not copied")):
        leases.report(claim, partial(transitions.noted, reason=reason, action="do it"))
    text = metrics.text().decode()
    waits = {f"subscription={claim.subscription.reference}": number for claim, number in ((waiting, 1), (following, 0))}
    assert values(text, "tailrace_subscription_waiting") == waits


def answers(count: int) -> list[Answer]:
    return [
        answer_of(
            subscription(id=number, name=f"n{number:05}"),
            Kept(
                progress={("t", 0): PartitionProgress(0, number)},
                delivery=Delivery(written=1000 * number, complete_to=1000 * number, letters=2, letters_since=1000),
                now=10_000_000,
            ),
        )
        for number in range(1, count + 1)
    ]


@pytest.mark.slow
def test_the_first_thousand_have_their_own_series_and_the_others_are_taken_together() -> None:
    metrics = ServerMetrics()
    metrics.registry.register(SubscriptionMetrics(lambda: answers(MOST + 3)))
    text = metrics.text().decode()
    others = f"subscription={OTHERS}"
    assert len(values(text, "tailrace_subscription_info")) == MOST
    behind = values(text, "tailrace_subscription_behind_records")
    assert (len(behind), behind[others], behind["subscription=shop.orders/n01000"]) == (
        MOST + 1,
        1001 + 1002 + 1003,
        1000,
    )
    assert values(text, "tailrace_subscription_dead_letters")[others] == 6
    assert values(text, "tailrace_subscription_written_timestamp_seconds")[others] == 1001
    assert values(text, "tailrace_subscription_behind_seconds")[others] == 10_000 - 1001
    assert values(text, "tailrace_subscription_state")[f"state=active,{others}"] == 3
    assert values(text, "tailrace_subscription_unclaimed")[others] == 3


def test_how_far_a_snapshot_is_and_what_is_left_out() -> None:
    [answer] = answers(1)
    metrics = ServerMetrics()
    shown = {**answer, "snapshot_percent": 41.7, "left_out": {"shop.a": "it has no column total"}}
    metrics.registry.register(SubscriptionMetrics(lambda: [shown]))
    text, reference = metrics.text().decode(), f"subscription={answer['reference']}"
    assert values(text, "tailrace_subscription_snapshot_percent") == {reference: 41.7}
    assert values(text, "tailrace_subscription_left_out_tables") == {reference: 1}


def test_a_meta_database_that_is_gone_is_said_and_the_rest_goes_on(tmp_path: Path) -> None:
    metrics = ServerMetrics()
    with MetaDatabase(f"sqlite:///{tmp_path / 'missing' / 'meta.db'}") as database:
        subscriptions = Subscriptions(database)
        metrics.watch(DirectOperations(subscriptions, Settings(), "test").all)
        metrics.answered(503)
        text = metrics.text().decode()
    assert values(text, "tailrace_server_meta_database_up") == {"": 0}
    assert values(text, "tailrace_server_requests_total") == {"status=503": 1}
    assert "tailrace_subscription" not in text
