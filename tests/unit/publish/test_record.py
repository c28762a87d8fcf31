"""Records, and how many of them each partition got."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.commitlog.frames import Entry
from tailrace.publish.record import PublishedPlaces, Record, Tally
from tailrace_schemas.position import Position
from tests.unit.agent.world import NOTES, ORDERS, entries

# Equal names are not always the same object.
TOPICS = st.sampled_from(["a", "b", "c"]).map(lambda name: "".join(["topic ", name]))
NOWHERE = UUID(int=7)


@given(st.lists(st.lists(st.tuples(TOPICS, st.integers(0, 3)), max_size=6), max_size=4))
def test_a_tally_counts_every_record_once(batches: list[list[tuple[str, int]]]) -> None:
    tally = Tally()
    for batch in batches:
        tally.add([Record(topic, number, None, b"") for topic, number in batch])
    places = [place for batch in batches for place in batch]
    assert tally.records == len(places)
    assert tally.partitions == len(set(places))
    assert tally.by_topic() == Counter(topic for topic, _ in places)


def entry(offset: int, payload: bytes) -> Entry:
    return Entry(0, 1, offset, payload, 7, "file")


@pytest.mark.parametrize(
    ("table", "after", "expected", "why"),
    [
        (ORDERS.id, 20, False, "its last change is at the place"),
        (ORDERS.id, 19, True, "its last change is behind the place"),
        (NOTES.id, 9, True, "one of another table, between"),
        (NOTES.id, 10, False, "nothing of it behind the place"),
        (NOWHERE, 1, False, "no change of it"),
    ],
)
def test_changes_behind_a_place(table: UUID, after: int, expected: bool, why: str) -> None:
    published = PublishedPlaces()
    [first, last], [note] = entries("ab"), entries("x", NOTES)
    published.add([entry(7, first), entry(10, note)])
    published.add([entry(20, last), entry(30, b"")])
    assert published.may_have(table, Position(0, 1, after)) is expected, why


def test_a_mutation_of_several_tables() -> None:
    published = PublishedPlaces()
    payload = b"\x02" + NOTES.id.bytes + bytes(40) + ORDERS.id.bytes
    published.add([entry(10, payload)])
    for table in (ORDERS.id, NOTES.id):
        assert published.may_have(table, Position(0, 1, 9))
        assert not published.may_have(table, Position(0, 1, 10))
    assert not published.may_have(NOWHERE, Position(0, 1, 9))


def test_mutations_of_several_tables_that_are_no_longer_remembered() -> None:
    """Only so many are. Behind a place before them all another one may have stood."""
    published = PublishedPlaces()
    payload = b"\x02" + NOTES.id.bytes + bytes(40) + ORDERS.id.bytes
    published.add([entry(10, payload)])
    published.add([entry(offset, b"\x02" + NOTES.id.bytes) for offset in range(11, 11 + 1024)])
    assert published.may_have(ORDERS.id, Position(0, 1, 9))
    assert not published.may_have(ORDERS.id, Position(0, 1, 11))
