"""What a sink has of a subscription, on every meta database: kept with the offsets, by the owner alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model import transitions
from tailrace_server.model.delivery import Delivery, News, PartitionProgress, total_behind
from tailrace_server.model.subscription import LostLeaseError, Start
from tests.unit.server.requests import request

WHO = "an operator"
POSITIONS = {("t", 0): PartitionProgress(7, 9)}
NewWorker = Callable[..., Leases]


def test_letters_add_up_and_times_are_the_database_s(subscriptions: Subscriptions, worker: NewWorker) -> None:
    one = subscriptions.subscribe(request(), WHO)[0]
    assert subscriptions.deliveries([one.id])[1] == {one.id: Delivery()}
    leases = worker("w")
    [claim] = leases.claim(1)
    before, _ = subscriptions.deliveries([])
    leases.save(claim, POSITIONS, News(wrote=True, letters=3, complete_seconds=60.0))
    now, kept = subscriptions.deliveries([one.id])
    first = kept[one.id]
    assert first.letters == 3
    assert before <= (first.written or 0) <= now
    assert before <= (first.letters_since or 0) <= now
    assert before - 60_000 <= (first.complete_to or 0) <= now - 60_000
    leases.save(claim, POSITIONS, News(letters=2))
    assert subscriptions.deliveries([one.id])[1][one.id] == Delivery(
        written=first.written, complete_to=first.complete_to, letters=5, letters_since=first.letters_since
    )


def test_who_lists_letters_corrects_the_count_beside_a_worker(subscriptions: Subscriptions, worker: NewWorker) -> None:
    one = subscriptions.subscribe(request(), WHO)[0]
    subscriptions.count_letters(one.id, 0, 0)
    assert subscriptions.deliveries([one.id])[1][one.id] == Delivery()
    subscriptions.count_letters(one.id, 0, 2)
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.save(claim, POSITIONS, News(letters=5))
    subscriptions.count_letters(one.id, 2, 0)
    kept = subscriptions.deliveries([one.id])[1][one.id]
    assert (kept.letters, kept.letters_since is None) == (5, False)
    subscriptions.count_letters(one.id, 5, 0)
    kept = subscriptions.deliveries([one.id])[1][one.id]
    assert (kept.letters, kept.letters_since) == (0, None)


def test_who_has_lost_the_lease_counts_nothing(subscriptions: Subscriptions, worker: NewWorker) -> None:
    one = subscriptions.subscribe(request(), WHO)[0]
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.release(claim)
    with pytest.raises(LostLeaseError):
        leases.save(claim, POSITIONS, News(wrote=True, letters=3))
    assert subscriptions.deliveries([one.id])[1] == {one.id: Delivery()}


def test_a_reset_of_the_log_forgets_how_complete_it_was(subscriptions: Subscriptions, worker: NewWorker) -> None:
    one = subscriptions.subscribe(request(), WHO)[0]
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.save(claim, POSITIONS, News(letters=1, complete_seconds=0.0))
    subscriptions.change(
        one.id, "reset", WHO, partial(transitions.restarted, start=Start(), reading="second"), offsets={}
    )
    kept = subscriptions.deliveries([one.id])[1][one.id]
    assert (kept.complete_to, kept.letters) == (None, 1)


def test_a_topic_that_is_read_no_more_is_not_behind(subscriptions: Subscriptions, worker: NewWorker) -> None:
    """As one that was deleted while nobody ran the subscription. Where it was read to is kept: it may come again."""
    one = subscriptions.subscribe(request(), WHO)[0]
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.save(claim, {**POSITIONS, ("gone", 0): PartitionProgress(1, 50)})
    leases.save(claim, {("t", 0): PartitionProgress(9, 9)})
    [kept] = subscriptions.progress([one.id]).values()
    assert kept == {("t", 0): PartitionProgress(9, 9), ("gone", 0): PartitionProgress(1)}
    assert total_behind(kept.values()) == 0
