"""What a host tells of its progress, and how often."""

from __future__ import annotations

import json

import pytest

from tailrace.agent.commits import Transaction
from tailrace.agent.limits import Limits
from tailrace.agent.notes import ProgressNotes
from tailrace.ops.health import HealthBoard
from tailrace.publish.record import Record
from tailrace.state import Quarantined, Resume
from tailrace_common.kafka import Pace
from tailrace_schemas.position import Position
from tailrace_schemas.progress import decode_progress
from tests.support.clock import ManualClock
from tests.support.kafka import Faults, MemoryKafka, MemoryPublisher
from tests.unit.agent.world import entries, world_with

AT, LATER = Position(1, 7, 40), Position(1, 7, 90)


def test_moves_are_told_from_time_to_time_and_rest_seldom() -> None:
    """The first at once; a position that has not moved for six times as long is told so seldom. What moved last is
    complete only by a later record."""
    clock = ManualClock()
    notes = ProgressNotes("c", "h", 10, clock, lambda: 1000 + int(clock.now))
    told = []
    for second in range(290):
        clock.now = second
        position = AT if second < 135 else LATER
        if (record := notes.record(Resume(position), caught_up=True, durable=None)) is not None:
            told.append((second, decode_progress(*record).position.offset))
    assert told == [
        *((second, 40) for second in (0, 10, 20, 30, 40, 50, 110)),
        *((second, 90) for second in (135, 145, 155, 165, 175, 185, 245)),
    ]


def test_what_was_released_before_the_last_look_is_complete() -> None:
    """Of a look that found nothing more; a record between two such looks says the earlier one."""
    clock = ManualClock()
    notes = ProgressNotes("c", "h", 10, clock, lambda: 9_999)
    told: list[int | None] = []
    for looked in (None, 5_000, None):
        if looked is not None:
            notes.complete(looked)
        record = notes.record(Resume(AT), caught_up=False, durable=None)
        assert record is not None
        told.append(decode_progress(*record).complete_to)
        clock.now += 10
    assert told == [None, 5_000, 5_000]


def test_a_host_is_told_by_the_name_that_people_know() -> None:
    notes = ProgressNotes("c", "h", 10, ManualClock(), lambda: 1, "cassandra-1")
    record = notes.record(Resume(AT), caught_up=True, durable=None)
    assert record is not None
    assert decode_progress(*record).name == "cassandra-1"


def test_a_host_without_any_change_says_that_it_has_published_all() -> None:
    """Else readers would wait for it for ever: it may be in a datacenter that no table is in."""
    notes = ProgressNotes("c", "h", 10, ManualClock(), lambda: 1234)
    notes.complete(1200)
    record = notes.record(Resume(), caught_up=True, durable=None)
    assert record is not None
    progress = decode_progress(*record)
    assert (progress.position, progress.durable, progress.complete_to) == (
        Position(1, -1, 0),
        Position(1, -1, 0),
        1200,
    )


def test_tells_what_is_set_aside() -> None:
    """And where; the clock is the agent's."""
    notes = ProgressNotes("c", "h", 10, ManualClock(), lambda: 1234)
    record = notes.record(Resume(AT, quarantined=(Quarantined(6, 1, 2),)), caught_up=False, durable=Position(1, 6, 30))
    assert record is not None
    key, value = record
    assert (key, json.loads(value)) == (
        b"c/h",
        {
            "position": {"epoch": 1, "segment": 7, "offset": 40},
            "durable": {"epoch": 1, "segment": 6, "offset": 30},
            "at": 1234,
            "caught_up": False,
            "parked": 0,
            "quarantined": 1,
            "format": 1,
        },
    )


@pytest.mark.promise("agent.progress-behind-data")
def test_progress_is_the_position_of_its_own_transaction() -> None:
    """Never ahead of the changes that are committed with it."""
    world = world_with(entries("abc"), final=False)
    world.live(idle_waits=5)
    (_, key, value), *more = world.kafka.notes
    assert more == []
    progress = decode_progress(key, value)
    assert world.position is not None
    assert (progress.position.segment, progress.position.offset) == world.position
    assert progress.caught_up
    assert progress.complete_to is not None
    assert progress.complete_to <= progress.at


@pytest.mark.parametrize(
    ("partitions", "seconds"), [(1, 0.02), (36, 0.02), (72, 0.04), (630, 0.35), (1800, 1.0), (9000, 1.0)]
)
def test_a_transaction_of_many_partitions_may_be_older(partitions: int, seconds: float) -> None:
    """Its commit takes longer; but readers never wait for more than a second."""
    clock = ManualClock()
    publisher = MemoryPublisher(MemoryKafka(), Faults())
    publisher.start()
    transaction = Transaction(publisher, Limits(), HealthBoard(clock), clock, lambda: 0, Pace(10, 600, clock))
    transaction.send([Record("t", number, None, b"") for number in range(partitions)])
    assert transaction.left == pytest.approx(seconds)
    assert not transaction.full
    clock.wait(seconds + 0.001)
    assert transaction.full
