"""What a run keeps of itself, on a real meta database, by a Kafka and a clock of the test's."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tailrace_schemas.errors import ServiceError, SettingsError
from tailrace_schemas.topics import KafkaPartition
from tailrace_server.meta.database import MetaDatabase
from tailrace_server.meta.leases import Leases
from tailrace_server.meta.subscriptions import Subscriptions
from tailrace_server.model.delivery import Delivery
from tailrace_server.model.subscription import LostLeaseError, Topics
from tailrace_server.worker.keeping import Keeper, MetaNotes
from tailrace_spark.snapshot.progress import Snapshots, State, TableSnapshot
from tailrace_spark.snapshot.ranges import TokenRange
from tests.unit.server.requests import CLUSTER, request

A = ("t", 0)
TOPICS = Topics(ids={"t": "1"})
TABLE = TableSnapshot(id="x", table="shop.orders", asked=0).begun("t", 1.0, {"topic": {"0": 5}}, 7)
READING = TABLE.planned([(TokenRange(-9, 0),)]).written(10, 100, 2.0, 32).planned([(TokenRange(0, 9),)])


class Site:
    """A subscription that is run, and all that its run sees."""

    def __init__(self, database: MetaDatabase) -> None:
        self.subscriptions = Subscriptions(database)
        self.id = self.subscriptions.subscribe(request(), "test")[0].id
        leases = Leases(database, CLUSTER, "w", 60)
        [claim] = leases.claim(1)
        self.now, self.end, self.letters, self.answers = 1000.0, 10, 0, True
        self.keeper = Keeper(claim, leases, self._ends, lambda: self.letters, lambda: self.now)
        self.keeper.begin({A: 0}, TOPICS)

    def _ends(self, partitions: Collection[KafkaPartition]) -> dict[KafkaPartition, int]:
        if not self.answers:
            raise ServiceError("Kafka does not answer")
        return dict.fromkeys(partitions, self.end)

    @property
    def kept(self) -> Delivery:
        return self.subscriptions.deliveries([self.id])[1][self.id]

    @property
    def behind_seconds(self) -> float | None:
        now, kept = self.subscriptions.deliveries([self.id])
        complete_to = kept[self.id].complete_to
        return None if complete_to is None else round((now - complete_to) / 1000)


@pytest.fixture
def site(database: MetaDatabase) -> Site:
    return Site(database)


def test_the_topics_of_what_is_written_are_kept(site: Site) -> None:
    """Of one that is gone the id stays, by which another one of its name is known."""
    assert site.subscriptions.get(site.id).topics == TOPICS
    site.keeper.wrote({A: 10}, Topics(ids={"new": "2"}, readings={"new": "2"}))
    site.keeper.wrote({A: 11}, Topics(ids={"new": "2"}, readings={"new": "2"}))
    assert site.subscriptions.get(site.id).topics == Topics(ids={"t": "1", "new": "2"}, readings={"new": "2"})


def test_lag_in_seconds_grows_with_what_is_not_written_alone(site: Site) -> None:
    assert (site.behind_seconds, site.kept.written) == (None, None)
    site.keeper.wrote({A: 10}, TOPICS)
    assert site.behind_seconds == 0
    assert site.kept.written is not None
    site.now += 100
    site.end = 20
    site.keeper.refresh()
    assert site.behind_seconds == 100
    site.now += 50
    site.keeper.wrote({A: 20}, TOPICS)
    assert site.behind_seconds == 0


def test_letters_of_a_run_are_counted_once(site: Site) -> None:
    site.letters = 4
    site.keeper.wrote({A: 10}, TOPICS)
    site.keeper.refresh()
    site.letters = 5
    site.keeper.refresh()
    assert site.kept.letters == 5


def test_a_refresh_is_no_writing(site: Site) -> None:
    site.keeper.refresh()
    assert site.kept.written is None


def said(site: Site) -> str | None:
    return site.keeper.silence


def test_a_kafka_that_hangs_is_said_and_no_more_once_it_answers(site: Site) -> None:
    site.answers = False
    site.keeper.refresh()
    assert said(site) is None  # a broker that is restarted
    site.now += 20
    assert said(site) == "Kafka does not answer"
    site.keeper.refresh()
    assert said(site) == "Kafka does not answer"
    site.answers = True
    site.keeper.refresh()
    assert said(site) is None


@pytest.fixture
def subscribed(database: MetaDatabase) -> MetaDatabase:
    Subscriptions(database).subscribe(request(), "test")
    return database


@pytest.mark.promise("subscription.snapshot")
def test_the_next_worker_has_the_ranges_of_the_last_one(subscribed: MetaDatabase) -> None:
    first, second = (Leases(subscribed, CLUSTER, name, 60) for name in ("first", "second"))
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


def test_what_a_later_version_wrote_is_refused_with_what_to_do(subscribed: MetaDatabase) -> None:
    leases = Leases(subscribed, CLUSTER, "w", 60)
    [claim] = leases.claim(1)
    leases.save_snapshots(claim, '{"version": 99}')
    with pytest.raises(SettingsError, match=r"shop.orders/warehouse: .*format 99.*reset shop.orders/warehouse --snap"):
        MetaNotes(leases, claim).read()


def test_tables_that_could_not_be_read_are_named(subscribed: MetaDatabase) -> None:
    leases = Leases(subscribed, CLUSTER, "w", 60)
    [claim] = leases.claim(1)
    notes = MetaNotes(leases, claim)
    refused = TABLE.over(State.REFUSED, 2.0, "it has counters")
    notes.write(Snapshots(initial=True, tables=(TABLE.over(State.DONE, 2.0), refused)))
    assert notes.complaint == "shop.orders: it has counters"
