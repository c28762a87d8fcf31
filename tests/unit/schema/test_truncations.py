"""Truncations: what the log says of them, what is concluded from a read, and which are still to be published."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from tailrace.commitlog.mutation import decode_mutation
from tailrace.schema.truncations import Truncations, metadata_epoch, truncation_of, truncations_in
from tailrace.state import Resume, Truncation
from tailrace_schemas.position import Position
from tests.unit.ddl import LOCAL, schema_version, truncate

A, B = UUID(int=1), UUID(int=2)


def at(offset: int, segment: int = 5) -> Position:
    return Position(1, segment, offset)


def value(at: int, upto: tuple[int, int] = (5, 9)) -> bytes:
    """What `system.local` has of a truncation."""
    return upto[0].to_bytes(8, "big", signed=True) + upto[1].to_bytes(4, "big") + at.to_bytes(8, "big")


def test_what_the_log_says() -> None:
    """Table, time, and up to where data went; an empty table has no place."""
    mutation = decode_mutation(truncate(A, 1_700_000_000_000, (-1, 0)), 7, {LOCAL.id: LOCAL}.get)
    (found,) = truncations_in(mutation, at(20))
    assert found == Truncation(at(20), A, 1_700_000_000_000, (-1, 0))
    assert found.written == 1_700_000_000_000_000
    assert metadata_epoch(mutation) is None


@pytest.mark.parametrize("size", [0, 1, 19, 21])
def test_bytes_that_are_none_tell_nothing(size: int) -> None:
    """Of whatever length."""
    assert truncation_of(A, value(1)[:size].ljust(size, b"\0"), at(1)) is None


@pytest.mark.parametrize(("version", "epoch"), [(5, 5), (0, 0), (UUID("74709c9d30363848ab11202211b0251f").int, None)])
def test_a_schema_version_is_an_epoch_from_cassandra_6_on(version: int, epoch: int | None) -> None:
    """Before, it is a hash."""
    assert metadata_epoch(decode_mutation(schema_version(version), 7, {LOCAL.id: LOCAL}.get)) == epoch


ONE = Truncation(at(10), A, 1000)
TWO = Truncation(at(20), B, 2000)


def test_pending_ones_are_committed_and_come_back() -> None:
    """Those not published by then are in the record; what a failed transaction had published is pending again."""
    here = Truncations({})
    for one in (TWO, ONE):
        assert here.logged(one)
        here.add(one, at(30))
    assert here.pending == [ONE, TWO]
    here.published(ONE)
    record = Resume(None, schema=at(30), truncations=tuple(here.pending), truncated=here.told())
    assert record.truncations == (TWO,)
    assert record.truncated == ((A, 1000, False), (B, 2000, False))
    here.begin(Resume(None, schema=at(5)))  # the transaction failed
    assert here.pending == [ONE, TWO]
    here.published(ONE)
    here.begin(record)  # it had come through, though nobody said so
    assert here.pending == [TWO]
    here.sent()
    here.published(TWO)
    here.sent()
    here.begin(replace(record, truncations=()))
    assert here.pending == []
    again = Truncations()
    again.begin(record)
    assert (again.pending, again.told()) == ([TWO], record.truncated)


def test_what_a_hole_hid() -> None:
    """Newer than what is known, older than what follows; the log's word for it later is no news."""
    here = Truncations()
    here.ask({A: value(1000)})
    here.ask({A: value(5000)})
    assert here.told() == ((A, 1000, False),)
    assert here.missed({A: value(1000), B: b"?"}, at(0, 7), None) == []
    assert here.missed({A: value(3000)}, at(0, 7), 3_000_000) == []
    (found,) = here.missed({A: value(3000)}, at(0, 7), 3_000_001)
    assert found == Truncation(at(0, 7), A, 3000, (5, 9), inferred=True)
    assert here.missed({A: value(3000)}, at(0, 8), None) == []
    assert not here.logged(Truncation(at(20, 9), A, 3000))
    assert here.logged(Truncation(at(21, 9), A, 3001))
    here.forget(A)
    assert here.told() == ()


@pytest.mark.parametrize(
    ("one", "place", "settled"),
    [
        (ONE, at(30), False),
        (ONE, at(31), True),
        (ONE, at(0, 6), True),
        (replace(ONE, inferred=True), at(30), True),
    ],
)
def test_an_index_that_may_still_come_is_waited_for(one: Truncation, place: Position, settled: bool) -> None:
    """Until the log has gone on behind the section, or the segment is over."""
    here = Truncations({})
    here.add(one, at(30))
    assert here.settled(one, place) is settled
