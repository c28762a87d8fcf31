"""Totals of the last hour: one sample for a step, however many servers take it, and no more than an hour of them."""

from __future__ import annotations

from threading import Thread

import sqlalchemy as sa

from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.history import History, Sample
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.meta.tables import progress, progress_history
from tailrace_server.model.subscription import Subscription
from tests.unit.server.requests import request


def subscribed(subscriptions: Subscriptions, name: str, *ends: int | None) -> Subscription:
    """One with a partition of a topic for each end, all of them read up to 10."""
    subscription, _ = subscriptions.subscribe(request(name), "test")
    with subscriptions._database.transaction() as connection:
        for partition, end in enumerate(ends):
            values = {"subscription": subscription.id, "topic": "t", "kafka_partition": partition}
            connection.execute(sa.insert(progress).values(**values, next_offset=10, end_offset=end, changed=0))
    return subscription


def totals(samples: list[Sample]) -> list[tuple[int, int | None, int]]:
    return [(sample.reached, sample.behind, sample.partitions) for sample in samples]


def test_a_sample_has_the_totals_of_each_subscription(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    first = subscribed(subscriptions, "first", 15, 12, 9, None)
    second, third = subscribed(subscriptions, "second", None), subscribed(subscriptions, "third")
    history = History(database)
    assert history.take()
    samples = history.of([first.id, second.id, third.id])
    assert totals(samples[first.id]) == [(40, 7, 4)]
    assert totals(samples[second.id]) == [(10, None, 1)]
    assert samples[third.id] == []
    assert history.of([]) == {}


def test_one_sample_for_a_step(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    subscription = subscribed(subscriptions, "first", 15)
    day = 86_400_000
    results: list[bool] = []
    threads = [Thread(target=lambda: results.append(History(database, step=day).take())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [False, False, False, True]
    assert len(History(database).of([subscription.id])[subscription.id]) == 1


def test_the_oldest_go(database: MetaDatabase, subscriptions: Subscriptions) -> None:
    subscription = subscribed(subscriptions, "first", 15)
    with database.transaction() as connection:
        values = {"subscription": subscription.id, "reached": 1, "partitions": 1}
        connection.execute(sa.insert(progress_history), [{**values, "taken": taken} for taken in (1, 2, 3)])
    history = History(database)
    assert len(history.of([subscription.id])[subscription.id]) == 3
    assert history.take()
    assert totals(history.of([subscription.id])[subscription.id]) == [(10, 5, 1)]
