"""The seats of a shared reading: members join, write and leave in any order, and none holds up the others."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.job.offsets import Plan
from tailrace_spark.job.seats import QUEUED, Seat, Seats, SharedPart
from tailrace_spark.job.sharing import advanced, without_read
from tests.unit.spark.job.pieces import A, pieces_of, places


class Clock:
    """Moves whenever somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def begun(seats: Seats) -> dict[KafkaPartition, int]:
    return seats.begin(0.0, 0.0, threading.Event())


def part_of(batch: int, start: int, end: int) -> SharedPart:
    plan = Plan({A: start}, {A: end})
    return SharedPart(batch, plan, pieces_of(plan), last=True)


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
    for batch in range(data.draw(st.integers(0, 12))):
        match data.draw(st.sampled_from(["batch", "batch", "write", "write", "join", "leave"])):
            case "batch":
                for member in members:
                    if len(member.seat.parts) >= QUEUED:
                        member.write()  # else the reading waits, and here is no other thread
                end = position + data.draw(st.integers(0, 5))
                handed(seats, part_of(batch, position, end))
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
    for batch in range(QUEUED + 3):
        handed(seats, part_of(batch, position, position + 2))
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
    handed(seats, part_of(0, 4, 8))
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
    taken: list[SharedPart | None] = []
    thread = threading.Thread(target=lambda: taken.append(seat.take(60)))
    thread.start()
    part = part_of(0, 0, 2)
    handed(seats, part)
    thread.join()
    assert taken == [part]
    seat.wrote({A: 2})
    thread = threading.Thread(target=lambda: taken.append(seat.take(60)))
    thread.start()
    seats.close("over")
    thread.join()
    assert (taken[1], seat.closed) == (None, "over")


def test_parts_of_one_batch_come_in_order() -> None:
    seats = Seats(Clock())
    seat = seats.join("one", {A: 0})
    assert seat is not None
    begun(seats)
    plan: Plan = Plan({A: 0}, {A: 4})
    seated = seats.plan(plan)
    late = seats.join("two", {A: 4})
    first, last = (SharedPart(0, plan, pieces_of(plan), last=last) for last in (False, True))
    seats.hand_out(first, seated)
    seats.hand_out(last, seated)
    assert seat.take(0) is first
    seat.wrote({A: 0})
    assert seat.take(0) is last
    assert late is not None
    assert late.take(0) is None
