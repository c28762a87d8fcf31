"""Who shares a reading, as values: members miss nothing and get nothing twice, whenever they join and leave."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.offsets import PlannedBatch
from tailrace_spark.job.sharing import (
    LEAST_SECONDS,
    NEAR,
    QUEUED,
    Seat,
    Seats,
    SharedPart,
    advanced,
    behind,
    common_start,
    may_found,
    may_join,
    patience,
    without_read,
)
from tests.unit.spark.job.pieces import A, B, pieces_of, places

Offsets = Mapping[KafkaPartition, int]
offsets = st.fixed_dictionaries({}, optional={A: st.integers(0, 30), B: st.integers(0, 30)})


@pytest.mark.promise("subscription.shared-reading")
@given(offsets, offsets, st.lists(st.fixed_dictionaries({A: st.integers(0, 9), B: st.integers(0, 9)}), max_size=6))
def test_who_joins_gets_every_record_from_where_it_was_once(
    member: Mapping[KafkaPartition, int], reading: Mapping[KafkaPartition, int], steps: list[Offsets]
) -> None:
    joins = may_join(member, reading)
    assert joins == all(member.get(place, 0) >= offset for place, offset in reading.items())  # all are near here
    if not joins:
        return
    began, got = dict(member), list[tuple[KafkaPartition, int]]()
    position = dict(reading)
    for step in steps:
        plan = PlannedBatch(dict(position), {place: position.get(place, 0) + count for place, count in step.items()})
        got += places(list(without_read(pieces_of(plan), member, plan)))
        member, position = advanced(member, plan), dict(plan.end)
    assert len(got) == len(set(got))
    wanted = {(place, offset) for place, end in position.items() for offset in range(began.get(place, 0), end)}
    assert set(got) == wanted


@given(st.lists(offsets, min_size=1, max_size=4))
def test_a_reading_begins_where_nobody_lacks_anything(members: list[Offsets]) -> None:
    start = common_start(members)
    assert all(may_join(member, start) for member in members) == may_found(members)
    assert all(any(member.get(place) == offset for member in members) for place, offset in start.items())


def test_who_is_far_ahead_or_behind_stays_alone() -> None:
    assert may_join({A: NEAR}, {A: 0})
    assert not may_join({A: NEAR + 1}, {A: 0})
    assert not may_join({A: 4}, {A: 5})
    assert may_found([{A: 5}, {A: 4}])
    assert not may_found([{A: 0}, {A: NEAR + 1}])


def test_a_batch_behind_a_gap_is_refused() -> None:
    with pytest.raises(ValueError, match="2 records before a shared batch were not read"):
        advanced({A: 3}, PlannedBatch({A: 5}, {A: 9}))


def test_records_behind_are_counted() -> None:
    assert behind({A: 3, B: 9}, {A: 5, B: 7}) == 2
    assert behind({}, {A: 5}) == 5


@pytest.mark.promise("subscription.shared-reading")
@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(0, 20), st.booleans())
def test_who_is_not_slower_than_three_times_the_half_is_waited_for(
    taken: list[float], waiting: int, queued: bool
) -> None:
    """And nobody longer, where half of the members are done."""
    limit = patience(taken, len(taken) + waiting, queued=queued)
    assert limit is not None
    assert limit >= LEAST_SECONDS
    if waiting <= len(taken):
        assert 2 * sum(3 * seconds <= limit for seconds in taken) >= len(taken)
        assert limit == LEAST_SECONDS or 2 * sum(3 * seconds >= limit for seconds in taken) >= len(taken)
    else:
        assert limit >= 10 * min(taken)


@pytest.mark.parametrize(
    ("taken", "members", "limit"),
    [([1, 5, 9], 4, 15), ([1, 5, 9, 30], 8, 21), ([0.1, 0.2, 0.3], 4, 2), ([2, 9], 5, 20), ([0.1, 9], 5, 10)],
    ids=["three of four", "half of eight", "in no time", "fewer than half", "fewer than half, in no time"],
)
def test_how_long_a_batch_waits_for_those_that_are_not_done(taken: list[float], members: int, limit: float) -> None:
    assert patience(taken, members, queued=False) == patience(taken, members, queued=True) == limit


def test_while_none_is_done_nobody_is_left_behind_unless_others_wait_for_the_next_batch() -> None:
    assert patience([], 3, queued=False) is None
    assert patience([], 3, queued=True) == 60


class Clock:
    """Moves whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def begun(seats: Seats) -> dict[KafkaPartition, int]:
    return seats.begin(0.0, 0.0, threading.Event())


def part_of(start: int, end: int) -> SharedPart:
    plan = PlannedBatch({A: start}, {A: end})
    return SharedPart(plan, pieces_of(plan), last=True)


def handed(seats: Seats, part: SharedPart) -> None:
    seats.hand_out(part, seats.plan(part.plan))


class Member:
    """What one has written."""

    def __init__(self, seat: Seat, start: int) -> None:
        self.seat = seat
        self.start = self.next = start
        self.got: list[int] = []

    def write(self) -> None:
        """One part, if there is one."""
        part = self.seat.take(0)
        if part is not None:
            offsets = {A: self.next}
            unread = list(without_read(part.pieces, offsets, part.plan))
            self.got += [offset for _, offset in places(unread)]
            self.next = advanced(offsets, part.plan)[A]
            self.seat.wrote({A: self.next})


@pytest.mark.slow
@pytest.mark.promise("subscription.shared-reading")
@given(st.data())
def test_each_member_has_all_records_up_to_where_it_is_once(data: st.DataObject) -> None:
    seats = Seats(Clock())
    members: list[Member] = []

    def join(offset: int) -> None:
        if (seat := seats.join(f"m{len(members)}", {A: offset})) is not None:
            members.append(Member(seat, offset))

    for offset in data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=3)):
        join(offset)
    position = begun(seats)[A]
    for _ in range(data.draw(st.integers(0, 12))):
        match data.draw(st.sampled_from(["batch", "batch", "write", "write", "join", "leave"])):
            case "batch":
                for member in members:
                    if len(member.seat.parts) >= QUEUED:
                        member.write()  # else the reading waits, and here is no other thread
                end = position + data.draw(st.integers(0, 5))
                handed(seats, part_of(position, end))
                position = end
            case "write" if members:
                data.draw(st.sampled_from(members)).write()
            case "join":
                join(data.draw(st.integers(0, position + 5)))
            case "leave" if members:
                data.draw(st.sampled_from(members)).seat.leave("told to")
    for member in members:
        for _ in range(12):
            member.write()
        assert member.got == list(range(member.start, member.next))
        if member.seat.closed is None:
            assert member.next == max(position, member.start)


@pytest.mark.slow
@pytest.mark.promise("subscription.shared-reading", "subscription.isolated")
def test_who_stands_still_is_left_behind_and_the_others_go_on() -> None:
    seats = Seats(Clock())
    quick, stuck = (Member(seat, 0) for name in ("quick", "stuck") if (seat := seats.join(name, {A: 0})))
    position = begun(seats)[A]
    for _ in range(QUEUED + 3):
        handed(seats, part_of(position, position + 2))
        position += 2
        quick.write()
    assert quick.seat.closed is None
    assert stuck.seat.closed is not None
    assert "slower than the others" in stuck.seat.closed
    assert quick.next == position
    for _ in range(9):
        stuck.write()  # what was handed to it is its own still
    assert stuck.got == list(range(2 * (QUEUED + 1)))


def test_nobody_joins_a_reading_that_is_past_it_or_has_ended() -> None:
    seats = Seats(Clock())
    assert seats.join("early", {A: 5}) is not None
    assert seats.join("a little behind", {A: 4}) is not None
    assert begun(seats) == {A: 4}
    assert seats.join("behind", {A: 3}) is None
    assert seats.join("there", {A: 4}) is not None
    handed(seats, part_of(4, 8))
    assert seats.join("behind", {A: 7}) is None
    assert seats.join("ahead", {A: 9}) is not None
    seats.close("over")
    assert seats.join("late", {A: 9}) is None


def test_an_empty_reading_ends_for_good() -> None:
    seats = Seats(Clock())
    seat = seats.join("one", {A: 0})
    assert seat is not None
    assert not seats.close_if_empty("empty")
    seat.leave("told to")
    assert seat.take(0) is None
    assert seats.close_if_empty("empty")
    assert seats.join("two", {A: 0}) is None


def test_a_member_that_waits_is_told_of_a_part_and_of_the_end() -> None:
    seats = Seats(Clock())
    seat = seats.join("one", {A: 0})
    assert seat is not None
    begun(seats)
    with ThreadPoolExecutor(1) as pool:
        taking, part = pool.submit(seat.take, 60), part_of(0, 2)
        handed(seats, part)
        assert taking.result() is part
        seat.wrote({A: 2})
        taking = pool.submit(seat.take, 60)
        seats.close("over")
        assert (taking.result(), seat.closed) == (None, "over")


def test_parts_of_one_batch_come_in_order() -> None:
    seats = Seats(Clock())
    seat = seats.join("one", {A: 0})
    assert seat is not None
    begun(seats)
    plan: PlannedBatch = PlannedBatch({A: 0}, {A: 4})
    seated = seats.plan(plan)
    late = seats.join("two", {A: 4})
    first, last = (SharedPart(plan, pieces_of(plan), last=last) for last in (False, True))
    seats.hand_out(first, seated)
    seats.hand_out(last, seated)
    assert seat.take(0) is first
    seat.wrote({A: 0})
    assert seat.take(0) is last
    assert late is not None
    assert late.take(0) is None
