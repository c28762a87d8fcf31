"""How large a transaction grows: as small as can be where nothing waits, larger and larger where much does."""

from __future__ import annotations

import pytest

from tailrace.agent.commits import Transaction
from tailrace.agent.limits import Limits
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record
from tailrace.state import Resume
from tailrace_common.kafka import Pace
from tests.support.clock import ManualClock
from tests.support.kafka import Faults, MemoryKafka, MemoryPublisher
from tests.unit.agent.world import entries, world_with
from tests.unit.mutations import EPOCH

# op, token, write time, no TTL, no expiry, digest
MESSAGE = b"\xc3\x01" + bytes(8) + bytes(5 + 16)


class Bench:
    def __init__(self, limits: Limits) -> None:
        self.kafka, self.clock = MemoryKafka(), ManualClock()
        self.pace = Pace(10, 600, self.clock)
        publisher = MemoryPublisher(self.kafka, Faults())
        publisher.start()
        self.health = HealthBoard(self.clock)
        self.transaction = Transaction(publisher, limits, self.health, self.clock, lambda: 0, self.pace)

    def fill(self, partition: int = 0) -> int:
        """Send one record after the other until it is full, and commit; how many that took."""
        sent = 0
        while not self.transaction.full:
            self.transaction.send([Record("t", partition, None, MESSAGE)])
            sent += 1
        assert self.transaction.commit(Resume(), ()) == sent
        return sent


def test_each_may_be_twice_as_large_as_the_one_before_while_more_waits() -> None:
    bench = Bench(Limits(changes=3, stretch_changes=8))
    assert [bench.fill() for _ in range(6)] == [3, 6, 12, 24, 24, 24]
    bench.transaction.relax()
    assert [bench.fill() for _ in range(2)] == [3, 6]


def test_room_is_what_is_left_before_it_is_full() -> None:
    transaction = Bench(Limits(changes=3)).transaction
    assert transaction.room == 3
    transaction.send([Record("t", 0, None, MESSAGE)] * 2, mutations=1)
    assert (transaction.room, transaction.full) == (1, False)
    transaction.send([Record("t", 1, None, MESSAGE)])
    assert transaction.room == 3  # each partition that is touched makes room for as many
    transaction.send([Record("t", 1, None, MESSAGE)] * 4)
    assert (transaction.room, transaction.full) == (-1, True)


def test_one_that_fills_up_by_its_age_may_be_older_too_but_not_for_ever() -> None:
    limits = Limits(changes=1000, seconds=0.02, stretch_seconds=4)
    bench, ages = Bench(limits), list[float]()
    for _ in range(5):
        bench.transaction.send([Record("t", 0, None, MESSAGE)])
        ages.append(bench.transaction.left)
        bench.clock.wait(1.001 * ages[-1])
        assert bench.transaction.full
        bench.transaction.commit(Resume(), ())
    assert ages == pytest.approx([0.02, 0.04, 0.08, 0.08, 0.08])


def test_one_that_is_committed_before_it_is_full_lets_none_grow() -> None:
    bench = Bench(Limits(changes=3))
    bench.transaction.send([Record("t", 0, None, MESSAGE)])
    bench.transaction.commit(Resume(), ())
    assert bench.fill() == 3


def test_the_lag_of_each_topic_is_told_at_most_once_a_second() -> None:
    """From the write time of its last change to the commit, by the wall clock."""
    world = world_with(entries("a"), final=False)
    world.live()
    assert world.health.now.lags == {"ks.orders": pytest.approx(1_700_000_000 - EPOCH / 1e6, abs=1)}


def test_each_topic_has_its_lag_though_another_one_was_measured_a_moment_ago() -> None:
    bench = Bench(Limits(changes=3))
    for topic in ("busy", "quiet", "busy"):
        bench.transaction.send([Record(topic, 0, None, MESSAGE)])
        bench.transaction.commit(Resume(), ())
    assert set(bench.health.now.lags) == {"busy", "quiet"}
