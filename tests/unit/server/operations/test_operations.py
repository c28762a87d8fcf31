"""The operations on a meta database, as the commands and the HTTP API ask for them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from tailrace_schemas.errors import SettingsError
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.meta.tables import snapshot_progress, subscribe
from tailrace_server.model import transitions
from tailrace_server.model.delivery import PartitionProgress
from tailrace_server.model.subscription import (
    ConflictError,
    LostLeaseError,
    RefusedRequestError,
    UnknownSubscriptionError,
)
from tailrace_server.operations.asking import Asked
from tailrace_server.operations.operations import Alteration, DirectOperations
from tailrace_spark.snapshot.progress import Snapshots, TableSnapshot
from tailrace_spark.snapshot.ranges import TokenRange
from tailrace_spark.source.readings import EVERY
from tests.support.clock import ManualClock
from tests.support.meta_database import by
from tests.unit.server.requests import CLUSTER, settings


@pytest.fixture
def operations(subscriptions: Subscriptions) -> DirectOperations:
    return DirectOperations(subscriptions, settings(), "tester")


def ask(name: str = "warehouse", table: str = "shop.orders") -> Asked:
    return Asked(table=table, name=name, target="dwh")


def test_a_name_is_enough_where_it_is_the_only_one(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    operations.subscribe(ask("both"))
    operations.subscribe(ask("both", "shop.*"))
    assert operations.pause("warehouse")["state"] == "paused"
    assert operations.resume("shop.orders/warehouse")["state"] == "active"
    with pytest.raises(UnknownSubscriptionError, match=r"several: shop.\*/both, shop.orders/both"):
        operations.pause("both")
    with pytest.raises(UnknownSubscriptionError, match=r"neither: there is no such subscription; there: shop.\*/both"):
        operations.pause("neither")


@pytest.mark.parametrize(
    ("rooms", "reason"),
    [([], "no worker runs"), ([0, 0], "no worker has a free slot, of 2"), ([0, 3], "none could claim it")],
)
def test_one_that_nobody_runs_says_why_after_a_lease(tmp_path: Path, rooms: list[int], reason: str) -> None:
    """Counted from when it could have been claimed: its making, its resumption, the end of its last lease."""
    clock = ManualClock(1e9)
    with by(clock), MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        operations = DirectOperations(Subscriptions(database), settings(), "tester")
        workers = [Leases(database, CLUSTER, f"w{number}", 600) for number in range(len(rooms))]
        claimant = Leases(database, CLUSTER, "claimant", settings().server.lease_seconds)

        def later(seconds: float) -> str:
            clock.wait(seconds)
            for worker, room in zip(workers, rooms, strict=True):
                worker.renew(0, room)
            [answer] = operations.all()
            assert (answer["action"] == "") == (answer["reason"] == "")
            return str(answer["reason"])

        operations.subscribe(ask())
        assert (later(30), reason in later(1)) == ("", True)
        operations.pause("warehouse")
        assert (later(31), operations.resume("warehouse")["reason"]) == ("", "")
        assert (later(30), reason in later(1)) == ("", True)
        [claim] = claimant.claim(1)
        assert later(30) == ""
        claimant.release(claim)
        assert (later(30), reason in later(1)) == ("", True)


@pytest.mark.parametrize(
    ("rooms", "reason"), [([], "no worker runs"), ([0], "the sink is down"), ([3], "the sink is down")]
)
def test_one_that_fails_says_that_nobody_tries_it_again(tmp_path: Path, rooms: list[int], reason: str) -> None:
    """Where a worker lives it is the sink that somebody has to look at."""
    clock = ManualClock(1e9)
    with by(clock), MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        operations = DirectOperations(Subscriptions(database), settings(), "tester")
        operations.subscribe(ask())
        claimant = Leases(database, CLUSTER, "claimant", settings().server.lease_seconds)
        [claim] = claimant.claim(1)
        claimant.report(claim, partial(transitions.failed, reason="the sink is down", action="start it"))
        claimant.release(claim, 300)
        clock.wait(31)
        for number, room in enumerate(rooms):
            Leases(database, CLUSTER, f"w{number}", 600).renew(0, room)
        [answer] = operations.all()
        assert (answer["state"], answer["reason"]) == ("failing", reason)


def test_what_a_killed_worker_ran_has_no_owner_once_its_lease_has_ended(tmp_path: Path) -> None:
    """By that people know when they may remove what a cancelled one wrote, and nobody takes that over."""
    clock = ManualClock(1e9)
    with by(clock), MetaDatabase(f"sqlite:///{tmp_path / 'meta.db'}") as database:
        database.prepare()
        operations = DirectOperations(Subscriptions(database), settings(), "tester")
        operations.subscribe(ask())
        Leases(database, CLUSTER, "killed", 30).claim(1)
        operations.cancel("warehouse")
        [cancelled] = operations.all(cancelled=True)
        assert (cancelled["owner"], cancelled["running"]) == ("killed", True)
        clock.wait(31)
        [cancelled] = operations.all(cancelled=True)
        assert (cancelled["owner"], cancelled["running"]) == (None, False)


def test_what_is_altered_and_what_stays(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    stream: dict[str, bool | int | float | str | None] = {"trigger_seconds": 5}
    altered = Alteration(options={"table": "{table}"}, where="id > 1", columns={"email": "mask"}, stream=stream)
    operations.alter("warehouse", altered)
    assert operations.details("warehouse")["options"] == {"table": "{table}"}
    operations.alter("warehouse", Alteration(options={"table": None}, columns={"email": None}))
    details = operations.details("warehouse")
    assert details["options"] == {}
    stream = {"snapshot": "initial", "trigger_seconds": 5}
    assert (details["where"], details["columns"], details["stream"]) == ("id > 1", {}, stream)
    assert operations.alter("warehouse", Alteration(where=""))["state"] == "active"
    assert operations.details("warehouse")["where"] is None
    with pytest.raises(RefusedRequestError, match=r"options\.tabel; did you mean table"):
        operations.alter("warehouse", Alteration(options={"tabel": "x"}))
    operations.alter("warehouse", Alteration(target="memory"))
    assert operations.details("warehouse")["target"] == "memory"
    with pytest.raises(ConflictError, match="lake is of type delta"):
        operations.declare(replace(ask(), target="lake"))


def test_a_reset_sets_offsets_or_a_start(operations: DirectOperations) -> None:
    operations.subscribe(ask())
    operations.reset("warehouse", "earliest", {("t", 0): 5})
    [partition] = operations.details("warehouse")["partitions"]
    assert partition == {"topic": "t", "partition": 0, "next": 5, "end": None, "behind": None}
    operations.reset("warehouse", "2026-05-01", None)
    details = operations.details("warehouse")
    assert (details["partitions"], details["start"]) == ([], "2026-05-01T00:00:00.000+00:00")


@pytest.mark.promise("sinks.read-again")
def test_each_reset_is_a_reading_that_was_not_before(
    operations: DirectOperations, subscriptions: Subscriptions
) -> None:
    answer, _ = operations.subscribe(ask())
    readings = [subscriptions.get(answer["id"]).topics.readings]
    for ask_again in (partial(operations.reset, start="earliest"), partial(operations.reset, offsets={("t", 0): 5})):
        ask_again("warehouse")
        readings.append(subscriptions.get(answer["id"]).topics.readings)
    operations.reset("warehouse", snapshot=True)
    assert subscriptions.get(answer["id"]).topics.readings == readings[-1]
    assert readings[0] == {}
    assert len({reading[EVERY] for reading in readings[1:]}) == len(readings) - 1


@pytest.mark.promise("subscription.snapshot")
def test_who_says_nothing_of_snapshots_has_what_the_server_says_once(
    operations: DirectOperations, subscriptions: Subscriptions
) -> None:
    operations.subscribe(ask())
    other = DirectOperations(subscriptions, settings(server={"snapshot": "never"}), "tester")
    assert other.subscribe(ask())[1] is False
    assert other.declare(ask(), dry_run=True)["change"] == "none"
    other.subscribe(ask("later"))
    logs = Asked(table="shop.orders", name="logs", target="logs")
    operations.subscribe(logs)
    stages = {answer["name"]: (answer["stage"], answer["snapshot_percent"]) for answer in operations.all()}
    assert stages == {"warehouse": ("snapshot", None), "later": ("log", None), "logs": ("log", None)}
    with pytest.raises(RefusedRequestError, match="logs: snapshot is not for log tables"):
        operations.reset("logs", snapshot=True)
    with pytest.raises(RefusedRequestError, match="logs: snapshot is not for log tables"):
        operations.alter("logs", Alteration(stream={"snapshot": "initial"}))


def test_a_reset_with_a_snapshot_forgets_its_ranges(
    operations: DirectOperations, subscriptions: Subscriptions, database: MetaDatabase
) -> None:
    identity = operations.subscribe(ask())[0]["id"]
    leases = Leases(database, "tailrace", "w", 60)
    [claim] = leases.claim(1)
    reading = TableSnapshot(id="x", table="shop.orders", asked=0).begun("t", 1.0, {}, 1)
    reading = reading.planned([(TokenRange(-(2**63), 0),)]).written(10, 100, 2.0, 32).planned([(TokenRange(0, 9),)])
    leases.save_snapshots(claim, Snapshots(initial=True, tables=(reading,)).to_json())
    leases.save(claim, {("t", 0): PartitionProgress(5)})
    details = operations.details("warehouse")
    [table] = details["snapshots"]
    assert (details["stage"], details["snapshot_percent"], table["rows"], table["rows_per_second"]) == (
        "snapshot", 50.0, 10, 5.0
    )  # fmt: skip
    assert (table["done"], table["reading"]) == ([[-(2**63), 0]], [[0, 9]])
    operations.reset("warehouse", "latest")
    assert operations.details("warehouse")["snapshots"] == [table]
    [claim] = leases.claim(1)
    leases.save(claim, {("t", 0): PartitionProgress(7)})
    operations.reset("warehouse", snapshot=True)
    details = operations.details("warehouse")
    assert (details["snapshots"], details["start"]) == ([], "latest")
    assert [partition["next"] for partition in details["partitions"]] == [7]
    with pytest.raises(LostLeaseError):
        leases.save_snapshots(claim, "{}")
    assert subscriptions.snapshots([identity]) == {}


def test_a_snapshot_of_a_later_version_is_an_error_of_its_row_alone(
    operations: DirectOperations, database: MetaDatabase
) -> None:
    later = operations.subscribe(ask())[0]["id"]
    operations.subscribe(ask("other"))
    with database.transaction() as connection:
        values = {"subscription": later, "ranges": '{"version": 99}', "changed": 0}
        connection.execute(sa.insert(snapshot_progress).values(values))
    rows = {row["name"]: row for row in operations.all()}
    assert "format 99" in rows["warehouse"]["reason"]
    assert rows["other"]["reason"] == ""
    assert operations.details("warehouse")["snapshots"] == []


@pytest.mark.parametrize(
    "values",
    [{"shape": '{"later": 1}'}, {"state": "dreaming"}, {"topics": '{"later": {}}'}, {"start": "never"}],
    ids=str,
)
def test_a_subscription_of_a_later_version_is_an_error_of_its_row_alone(
    operations: DirectOperations, database: MetaDatabase, values: dict[str, str]
) -> None:
    """Servers of its version run it, and this one the others."""
    leases = Leases(database, CLUSTER, "worker", 60)
    later, other = operations.subscribe(ask())[0]["id"], operations.subscribe(ask("other"))[0]["id"]
    assert len(leases.claim(9)) == 2
    with database.transaction() as connection:
        connection.execute(sa.update(subscribe).where(subscribe.c.id == later).values(values))
    rows = {row["name"]: row for row in operations.all()}
    assert "shop.orders/warehouse was written by another version" in rows["warehouse"]["reason"]
    assert rows["other"]["reason"] == ""
    with pytest.raises(SettingsError, match="install that version here too"):
        operations.pause("warehouse")
    assert leases.renew(2).keys() == {other}
    with database.transaction() as connection:
        connection.execute(sa.update(subscribe).values(owner=None))
    assert [claim.subscription.id for claim in leases.claim(9)] == [other]
