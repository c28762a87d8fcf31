"""What every meta database does: subscriptions as operators change them, claims, progress, keys, the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from tailrace_schemas.errors import SettingsError
from tailrace_server.meta.credentials import ApiKeys, Role
from tailrace_server.meta.database import MetaDatabase, now
from tailrace_server.meta.leases import Claim, Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.meta.tables import metadata, subscribe
from tailrace_server.meta.tables import worker as workers
from tailrace_server.model import transitions
from tailrace_server.model.delivery import PartitionProgress
from tailrace_server.model.subscription import (
    ConflictError,
    LostLeaseError,
    Shape,
    Start,
    State,
    Subscription,
    Topics,
    UnknownSubscriptionError,
)
from tailrace_spark.source.readings import EVERY
from tests.unit.server.requests import CLUSTER, request

WHO = "an operator"
NewWorker = Callable[..., Leases]


def made(subscriptions: Subscriptions, *names: str) -> list[Subscription]:
    return [subscriptions.subscribe(request(name), WHO)[0] for name in names]


def let_time_pass(database: MetaDatabase) -> None:
    """Return when the database's clock, by which leases count, shows a later millisecond: one of 0 s has lapsed."""
    with database.transaction() as connection:
        begun = connection.scalar(sa.select(now()))
        assert begun is not None
        while (connection.scalar(sa.select(now())) or 0) <= begun:
            pass


@pytest.mark.promise("subscription.same-request")
def test_the_same_request_again_is_the_same_subscription(subscriptions: Subscriptions) -> None:
    first = subscriptions.subscribe(request(), WHO)
    again = subscriptions.subscribe(request(), WHO)
    assert (first[1], again[1]) == (True, False)
    assert again[0] == first[0]
    assert subscriptions.all(CLUSTER) == [first[0]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("different", "what"),
    [
        ({"sink": {"options": {"table": "{table}"}}}, "options"),
        ({"sink": {"target": "other"}}, "target"),
        ({"shape": Shape(where="id > 1")}, "filter"),
        ({"start": Start("latest")}, "start"),
    ],
)
@pytest.mark.promise("subscription.same-request")
def test_another_request_under_the_name_is_refused(
    subscriptions: Subscriptions, different: dict[str, Any], what: str
) -> None:
    [existing] = made(subscriptions, "warehouse")
    with pytest.raises(ConflictError, match=f"shop.orders/warehouse exists with another {what}"):
        subscriptions.subscribe(request(**different), WHO)
    assert subscriptions.all(CLUSTER) == [existing]


def test_names_are_of_a_table_and_letters_count(subscriptions: Subscriptions) -> None:
    asked = [
        request("a"),
        request("A"),
        request("a", "shop.Orders"),
        request("a", "shop.*"),
        request("a", cluster="c"),
    ]
    identities = {subscriptions.subscribe(one, WHO)[0].id for one in asked}
    assert len(identities) == len(asked)
    assert [one.reference for one in subscriptions.all("c")] == ["shop.orders/a"]


def test_it_comes_back_as_it_was_asked_for(subscriptions: Subscriptions) -> None:
    shape = Shape(where="country = 'DE' -- Straße", columns={"email": "hash"}, stream={"trigger_seconds": 0.5})
    start = Start.parse("2026-05-01T12:00:00.250Z")
    asked = request("a", shape=shape, start=start, sink={"options": {"table": "{table}"}})
    subscription, _ = subscriptions.subscribe(asked, WHO)
    assert subscriptions.get(subscription.id) == subscription
    assert (subscription.shape, subscription.start, subscription.sink) == (shape, start, asked.sink)
    assert (subscription.state, subscription.owner, subscription.token) == (State.ACTIVE, None, 0)


@pytest.mark.usefixtures("database")
def test_many_who_ask_at_once_get_one_subscription(url: str) -> None:
    def ask(_: int) -> tuple[Subscription, bool]:
        with MetaDatabase(url) as own:
            return Subscriptions(own).subscribe(request(), WHO)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert sum(new for _, new in answers) == 1
    assert len({subscription.id for subscription, _ in answers}) == 1


def test_a_cancelled_one_leaves_its_name_and_no_id_comes_again(subscriptions: Subscriptions) -> None:
    [first] = made(subscriptions, "a")
    subscriptions.change(first.id, "cancel", WHO, transitions.cancelled)
    assert subscriptions.all(CLUSTER) == []
    [second] = made(subscriptions, "a")
    assert second.id > first.id
    states = [one.state for one in subscriptions.all(CLUSTER, cancelled=True)]
    assert sorted(states) == ["active", "cancelled"]
    with pytest.raises(ConflictError, match="is cancelled"):
        subscriptions.change(first.id, "pause", WHO, transitions.paused)


def test_one_that_is_not_there(subscriptions: Subscriptions) -> None:
    with pytest.raises(UnknownSubscriptionError, match="no subscription 7"):
        subscriptions.change(7, "pause", WHO, transitions.paused)


def test_every_change_is_audited_with_before_and_after(subscriptions: Subscriptions) -> None:
    [one] = made(subscriptions, "a")
    subscriptions.change(one.id, "pause", "somebody", transitions.paused)
    subscriptions.change(one.id, "pause", "somebody", transitions.paused)  # changes nothing
    latest, first = subscriptions.audit("shop.orders/a", 10)
    assert (latest["who"], latest["operation"]) == ("somebody", "pause")
    assert (latest["before"]["state"], latest["after"]["state"]) == ("active", "paused")
    assert (first["before"], first["after"]["state"]) == (None, "active")
    assert latest["changed"] >= first["changed"] > 1_700_000_000_000


def test_what_a_transition_refuses_is_not_kept(subscriptions: Subscriptions) -> None:
    [one] = made(subscriptions, "a")

    def refuse(_: Subscription) -> Subscription:
        raise ConflictError("no")

    with pytest.raises(ConflictError, match="no"):
        subscriptions.change(one.id, "alter", WHO, refuse)
    assert subscriptions.get(one.id) == one


@pytest.mark.promise("subscription.one-owner")
def test_what_one_has_nobody_else_gets(subscriptions: Subscriptions, worker: NewWorker) -> None:
    one, two = made(subscriptions, "a", "b")
    left, right = worker("left"), worker("right")
    [claim] = left.claim(1)
    assert [other.subscription.id for other in right.claim(10)] == [
        {one.id: two.id, two.id: one.id}[claim.subscription.id]
    ]
    assert right.claim(10) == left.claim(10) == []
    assert list(left.renew(1)) == [claim.subscription.id]


@pytest.mark.promise("subscription.one-owner")
def test_a_lapsed_owner_is_refused(database: MetaDatabase, subscriptions: Subscriptions, worker: NewWorker) -> None:
    made(subscriptions, "a")
    killed, heir = worker("killed", seconds=0), worker("heir")
    [lapsed] = killed.claim(1)
    let_time_pass(database)
    progress = {("t", 0): PartitionProgress(7)}
    with pytest.raises(LostLeaseError, match=r"lease has ended \(token 1\)"):
        killed.save(lapsed, progress)
    assert killed.renew(1) == {}
    [claim] = heir.claim(1)
    assert claim.token == 2
    heir.save(claim, progress)
    for write in (
        partial(killed.save, lapsed, {("t", 0): PartitionProgress(99)}),
        partial(killed.report, lapsed, transitions.recovered),
        partial(killed.positions, lapsed),
        partial(killed.leave_out, lapsed, {"shop.a": "why"}),
    ):
        with pytest.raises(LostLeaseError):
            write()
    killed.release(lapsed)
    assert heir.positions(claim) == {("t", 0): 7}
    assert list(heir.renew(1)) == [claim.subscription.id]


@pytest.mark.promise("subscription.one-owner")
def test_a_worker_keeps_nothing_by_an_earlier_claim_of_its_own(subscriptions: Subscriptions, worker: NewWorker) -> None:
    """A run that has not ended yet is not the owner, though its worker is again."""
    made(subscriptions, "a")
    leases, partition = worker("one"), ("t", 0)
    [earlier] = leases.claim(1)
    leases.release(earlier)
    [claim] = leases.claim(1)
    with pytest.raises(LostLeaseError):
        leases.save(earlier, {partition: PartitionProgress(99)})
    leases.save(claim, {partition: PartitionProgress(7)})
    assert leases.positions(claim) == {partition: 7}


@pytest.mark.slow
@pytest.mark.promise("subscription.snapshot")
def test_ranges_are_kept_for_the_next_owner(subscriptions: Subscriptions, worker: NewWorker) -> None:
    subscriptions.subscribe(request(), "test")
    killed, heir = worker("killed"), worker("heir")
    [claim] = killed.claim(1)
    assert killed.snapshots(claim) is None
    for ranges in ("one", "two"):
        killed.save_snapshots(claim, ranges)
    killed.release(claim)
    [taken] = heir.claim(1)
    assert heir.snapshots(taken) == "two"
    with pytest.raises(LostLeaseError):
        killed.save_snapshots(claim, "three")
    with pytest.raises(LostLeaseError):
        killed.snapshots(claim)
    subscriptions.change(claim.subscription.id, "cancel", "test", transitions.cancelled)
    assert subscriptions.snapshots([claim.subscription.id]) == {}


@pytest.mark.promise("subscription.released")
def test_what_is_released_is_free_at_once(subscriptions: Subscriptions, worker: NewWorker) -> None:
    made(subscriptions, "a")
    left, right = worker("left"), worker("right")
    [claim] = left.claim(1)
    left.release(claim)
    assert [other.token for other in right.claim(1)] == [2]


def test_what_a_later_version_alters_at_the_moment_of_a_claim_is_left_to_that(
    database: MetaDatabase, subscriptions: Subscriptions, worker: NewWorker
) -> None:
    later, other = made(subscriptions, "a", "b")

    def meanwhile(identities: Sequence[int]) -> Sequence[int]:
        with database.transaction() as connection:
            altered = sa.update(subscribe).where(subscribe.c.id == later.id)
            connection.execute(altered.values(shape='{"colour": "red"}', revision=1))
        return identities

    assert [claim.subscription.id for claim in worker("one").claim(2, meanwhile)] == [other.id]
    assert subscriptions.all(CLUSTER)[0].owner is None


@pytest.mark.promise("subscription.one-owner")
def test_what_another_one_claims_at_the_same_moment_is_its_own(subscriptions: Subscriptions, worker: NewWorker) -> None:
    made(subscriptions, "a")
    quick, slow = worker("quick"), worker("slow")
    claims: list[Claim] = []

    def meanwhile(identities: Sequence[int]) -> Sequence[int]:
        claims.extend(quick.claim(1))
        return identities

    assert slow.claim(1, meanwhile) == []
    quick.save(claims[0], {("t", 0): PartitionProgress(1)})


def test_only_what_is_to_run_is_claimed(subscriptions: Subscriptions, worker: NewWorker) -> None:
    paused, cancelled, running = made(subscriptions, "p", "c", "r")
    subscriptions.change(paused.id, "pause", WHO, transitions.paused)
    subscriptions.change(cancelled.id, "cancel", WHO, transitions.cancelled)
    assert worker("of another", cluster="other").claim(10) == []
    [claim] = worker("ours").claim(10)
    assert claim.subscription.id == running.id


@pytest.mark.promise("subscription.one-owner")
def test_work_is_shared_among_those_who_live(
    database: MetaDatabase, subscriptions: Subscriptions, worker: NewWorker
) -> None:
    """And have the same cluster's; subscriptions of another one are not for them."""
    made(subscriptions, *"abcde")
    subscriptions.subscribe(request("f", cluster="other"), WHO)
    worker("of another", cluster="other").renew(0, room=100)
    left, right = worker("left"), worker("right")
    left.renew(0, room=100)
    assert (left.portion(100), left.portion(3)) == (5, 3)
    right.renew(0, room=100)
    worker("dead", seconds=0).renew(0, room=100)
    let_time_pass(database)
    assert (left.portion(100), right.portion(100)) == (3, 3)
    right.leave()
    assert left.portion(100) == 5


def test_one_that_has_left_keeps_its_leases_and_no_share(
    subscriptions: Subscriptions, worker: NewWorker, database: MetaDatabase
) -> None:
    """Its last batches may take longer than a lease."""
    made(subscriptions, *"ab")
    leaving, heir = worker("leaving"), worker("heir")
    leaving.renew(0, room=100)
    heir.renew(0, room=100)
    [claim] = leaving.claim(1)
    leaving.leave()
    column = sa.select(subscribe.c.lease_until).where(subscribe.c.id == claim.subscription.id)
    with database.transaction() as connection:
        before = int(connection.scalar(column) or 0)
    worker("leaving", seconds=3600).keep()
    with database.transaction() as connection:
        assert int(connection.scalar(column) or 0) > before > 0
    assert heir.portion(100) == 2
    assert [other.subscription.name for other in heir.claim(2)] == ["b"]


def test_no_worker_waits_for_another_one_to_say_that_it_lives(
    database: MetaDatabase, url: str, worker: NewWorker
) -> None:
    """Each would wait for the other, and one lose its beat."""
    if url.startswith("sqlite"):
        pytest.skip("one writes at a time there")
    worker("other").renew(0)
    with database.transaction() as connection:
        connection.execute(sa.update(workers).where(workers.c.owner == "other").values(running=1))
        worker("one").renew(0)
        worker("one").renew(1)


def test_a_worker_that_was_killed_leaves_no_row_for_ever(database: MetaDatabase, worker: NewWorker) -> None:
    worker("killed").renew(0)
    with database.transaction() as connection:
        connection.execute(sa.update(workers).values(seen_until=0))
    worker("one").renew(0)
    with database.transaction() as connection:
        assert connection.scalars(sa.select(workers.c.owner)).all() == ["one"]


def test_a_reset_fences_whoever_runs_it(subscriptions: Subscriptions, worker: NewWorker) -> None:
    [one] = made(subscriptions, "a")
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.save(claim, {("t", 0): PartitionProgress(7, 9), ("t", 1): PartitionProgress(1)})
    assert subscriptions.progress([one.id]) == {
        one.id: {("t", 0): PartitionProgress(7, 9), ("t", 1): PartitionProgress(1, None)}
    }
    reset = partial(transitions.restarted, start=Start(), reading="second")
    subscriptions.change(one.id, "reset", WHO, reset, offsets={("t", 0): 3})
    with pytest.raises(LostLeaseError):
        leases.save(claim, {("t", 0): PartitionProgress(8)})
    [again] = leases.claim(1)
    assert leases.positions(again) == {("t", 0): 3}
    leases.save(again, {("t", 0): PartitionProgress(4, 5)})
    assert leases.positions(again) == {("t", 0): 4}
    assert again.subscription.topics == Topics(readings={EVERY: "second"})


TOPICS = Topics(ids={"t": "id"}, readings={"t": "another"}, begun=True)


def test_topics_are_kept_with_progress(subscriptions: Subscriptions, worker: NewWorker) -> None:
    [one] = made(subscriptions, "a")
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.save(claim, {("t", 0): PartitionProgress(1)}, topics=TOPICS)
    leases.save(claim, {("t", 0): PartitionProgress(2)})
    assert subscriptions.get(one.id).topics == TOPICS
    subscriptions.change(one.id, "pause", WHO, transitions.paused)
    assert subscriptions.get(one.id).topics == TOPICS


def test_a_failure_is_reported_and_an_operators_state_wins(subscriptions: Subscriptions, worker: NewWorker) -> None:
    [one] = made(subscriptions, "a")
    leases = worker("w")
    [claim] = leases.claim(1)
    fails = partial(transitions.failed, reason="the sink is down", action="start it")
    leases.report(claim, fails)
    leases.report(claim, fails)
    failing = subscriptions.get(one.id)
    assert (failing.state, failing.attempts, failing.reason) == (State.FAILING, 2, "the sink is down")
    subscriptions.change(one.id, "pause", WHO, transitions.paused)
    leases.report(claim, fails)
    assert subscriptions.get(one.id).state is State.PAUSED
    assert leases.renew(1)[one.id].state is State.PAUSED


def test_a_reason_is_kept_whatever_signs_a_service_has_put_into_it(
    subscriptions: Subscriptions, worker: NewWorker
) -> None:
    """Halves of characters, as JSON has them, and what PostgreSQL has in no text: else no beat of a worker is whole."""
    [one] = made(subscriptions, "a")
    leases = worker("w")
    [claim] = leases.claim(1)
    leases.report(claim, partial(transitions.failed, reason="it said \ud83d\0 ä", action="start it"))
    assert subscriptions.get(one.id).reason == "it said ?? ä"


def test_what_is_left_out_is_kept_with_its_reasons(subscriptions: Subscriptions, worker: NewWorker) -> None:
    [one] = made(subscriptions, "a")
    leases = worker("w")
    [claim] = leases.claim(1)
    assert claim.subscription.left_out == {}
    leases.leave_out(claim, {"shop.ä": "has no column"})
    assert subscriptions.get(one.id).left_out == {"shop.ä": "has no column"}
    leases.leave_out(claim, {})
    assert subscriptions.get(one.id).left_out == {}


def test_a_key_is_known_by_its_digest(database: MetaDatabase) -> None:
    keys = ApiKeys(database)
    key = keys.add("ci", Role.OPERATE)
    caller = keys.caller(key)
    assert caller is not None
    assert (caller.name, caller.role) == ("ci", Role.OPERATE)
    assert keys.caller(key[:-1]) is keys.caller("") is None
    with pytest.raises(ConflictError, match="there is an API key ci"):
        keys.add("ci", Role.READ)
    keys.revoke("ci")
    assert keys.caller(key) is None
    with pytest.raises(UnknownSubscriptionError, match="no API key ci"):
        keys.revoke("ci")


def test_roles_include_each_other() -> None:
    assert [[role.may(needed) for needed in Role] for role in Role] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


def test_a_new_database_has_the_tables_of_the_code(database: MetaDatabase) -> None:
    with database.transaction() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_servers_that_start_at_once_make_them_once(url: str) -> None:
    def prepare(_: int) -> None:
        with MetaDatabase(url) as own:
            own.prepare()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(prepare, range(4)))


@pytest.mark.parametrize("revision", ["0000", "9999"])
def test_tables_of_a_version_that_nobody_knows_are_refused(database: MetaDatabase, revision: str) -> None:
    with database.transaction() as connection:
        connection.execute(sa.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    with pytest.raises(SettingsError, match=rf"another version of Tailrace \(revision {revision}\)"):
        database.prepare()


def test_the_longest_names_of_cassandra_s_are_kept(subscriptions: Subscriptions) -> None:
    longest = request("n" * 64, f"{'k' * 48}.{'t' * 222}")
    kept, _ = subscriptions.subscribe(longest, WHO)
    assert subscriptions.all(CLUSTER) == [kept]
    [audited] = subscriptions.audit(kept.reference, 10)
    assert audited["subject"] == f"{'k' * 48}.{'t' * 222}/{'n' * 64}"
