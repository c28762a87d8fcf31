"""Records, and how many of them each partition got."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tailrace.publish.record import Record, Tally

# Equal names are not always the same object.
TOPICS = st.sampled_from(["a", "b", "c"]).map(lambda name: "".join(["topic ", name]))


def test_records_are_equal_by_what_is_in_them() -> None:
    record = Record("t", 1, b"k", b"v")
    assert record == Record("t", 1, b"k", b"v")
    assert record not in (Record("t", 2, b"k", b"v"), Record("t", 1, None, b"v"), ("t", 1, b"k", b"v"))
    assert hash(record) == hash(Record("t", 1, b"k", b"v"))
    assert repr(record) == "Record('t', 1, b'k', b'v')"


@given(st.lists(st.lists(st.tuples(TOPICS, st.integers(0, 3)), max_size=6), max_size=4))
def test_a_tally_counts_every_record_once(batches: list[list[tuple[str, int]]]) -> None:
    tally = Tally()
    for batch in batches:
        tally.add([Record(topic, number, None, b"") for topic, number in batch])
    places = [place for batch in batches for place in batch]
    assert tally.records == len(places)
    assert tally.partitions == len(set(places))
    assert tally.by_topic() == Counter(topic for topic, _ in places)
