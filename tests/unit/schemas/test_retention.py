"""Which generations may go, and the record that lets them: its rules, each broken once."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.generation_records import (
    Expired,
    GenerationLog,
    Ignored,
    Proposal,
    PublishedGeneration,
    encode_expired,
    encode_proposal,
)
from tailrace_schemas.retention import keep_from
from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import LEEWAY_MS, Mark, build_generation

DAY = 86_400_000
NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (1, -5)), Node("b", "dc2", (7,))))

KEPT = [
    # timestamps, now, retentions, the oldest that stays
    ([], 100, [10], None),
    ([1], 100, [10], None),
    ([1, 50], 100, [10], 50),
    ([1, 90], 100, [10], 90),
    ([1, 91], 100, [10], None),
    ([1, 20, 50, 95], 100, [10], 50),
    ([1, 20, 50, 95], 100, [10, 60], 20),
    ([1, 20, 50, 95], 100, [10, None], None),
    ([1, 20, 50, 95], 100, [None], None),
    ([1, 20, 50, 95], 100, [], None),
    ([1, 20, 50, 95], 100, [0], 95),
    ([1, 20, 50, 105], 100, [0], 50),
]


@pytest.mark.parametrize(("timestamps", "now", "retentions", "oldest"), KEPT)
def test_the_oldest_that_stays(
    timestamps: list[int], now: int, retentions: list[int | None], oldest: int | None
) -> None:
    assert keep_from(timestamps, now, retentions) == oldest


@pytest.mark.promise("ring.retention")
@given(
    timestamps=st.lists(st.integers(0, 1000), unique=True, min_size=1).map(sorted),
    now=st.integers(0, 2000),
    retentions=st.lists(st.integers(0, 500), min_size=1),
)
def test_no_kept_change_loses_its_generation(timestamps: list[int], now: int, retentions: list[int]) -> None:
    """Whatever is not older than its table's retention is assigned as before; and nothing more is kept than that."""
    oldest = keep_from(timestamps, now, retentions)
    kept = [timestamp for timestamp in timestamps if oldest is None or timestamp >= oldest]
    for at in range(max(now - max(retentions), timestamps[0]), now + 1):
        assert max(t for t in timestamps if t <= at) in kept
    for before, after in pairwise(kept):
        assert before == kept[0] or after > now - max(retentions)
    assert len(kept) < 2 or kept[1] > now - max(retentions)


class Topic:
    """A log of generations that begin a day after one another, and its records."""

    def __init__(self, count: int) -> None:
        self.log = GenerationLog()
        self._offset = 0
        predecessor = None
        for n in range(count):
            self.publish(n, NOW + n * DAY, predecessor)
            predecessor = NOW + n * DAY

    def publish(self, n: int, timestamp: int, predecessor: int | None) -> None:
        """One more generation."""
        generation = build_generation(RING, timestamp=timestamp, seed=ring_seed(RING, predecessor))
        proposal = Proposal(uuid=UUID(int=n), predecessor=predecessor, ring=RING, generation=generation)
        for key, value in encode_proposal(proposal):
            found = self.feed(timestamp - LEEWAY_MS, key, value)
        assert isinstance(found, PublishedGeneration)

    def feed(self, at: int, key: bytes, value: bytes) -> PublishedGeneration | Expired | Ignored | None:
        """The next record, appended at this time."""
        self._offset += 1
        return self.log.feed(self._offset - 1, at, key, value)

    @property
    def days(self) -> list[int]:
        """The generations that are not gone."""
        return [(one.timestamp - NOW) // DAY for one in self.log.published]


@pytest.mark.parametrize("oldest", [1, 2, 3])
def test_generations_go_and_the_next_one_comes(oldest: int) -> None:
    topic = Topic(4)
    timestamp = NOW + oldest * DAY
    gone = topic.feed(timestamp + 5 * DAY, *encode_expired(timestamp, 5 * DAY))
    assert isinstance(gone, Expired)
    assert (gone.gone, gone.oldest) == (tuple(NOW + n * DAY for n in range(oldest)), timestamp)
    assert topic.days == list(range(oldest, 4))
    found = topic.log.operating(timestamp * 1000 - 1)
    assert found is not None
    assert (found[0].timestamp, found[1]) == (timestamp, Mark.BEFORE_FIRST)
    assert topic.log.operating(timestamp * 1000) == (found[0], None)
    topic.publish(4, NOW + 20 * DAY, NOW + 3 * DAY)
    assert topic.days == [*range(oldest, 4), 20]


def _changed(**fields: Any) -> tuple[bytes, bytes]:
    key, value = encode_expired(NOW + DAY, DAY)
    return key, json.dumps({**json.loads(value), **fields}).encode()


REFUSED = {
    "too early by a millisecond": (_changed(), NOW + 2 * DAY - 1, "were not older"),
    "no such generation": (_changed(oldest=NOW + DAY + 1), NOW + 9 * DAY, "is no generation"),
    "the first": (_changed(oldest=NOW), NOW + 9 * DAY, "is no generation"),
    "one that does not operate yet": (_changed(oldest=NOW + 3 * DAY, retention=0), NOW + 3 * DAY - 1, "not older"),
    "a negative retention": (_changed(retention=-DAY), NOW + 9 * DAY, "were not older"),
    "no version": (_changed(version=None), NOW + 9 * DAY, "field version"),
    "a text": (_changed(oldest="1"), NOW + 9 * DAY, "field oldest"),
    "no JSON": ((b"expired", b"{"), NOW + 9 * DAY, "not JSON"),
    "another key": ((b"Expired", _changed()[1]), NOW + 9 * DAY, "no proposal's"),
}


@pytest.mark.promise("ring.retention")
@pytest.mark.parametrize(("record", "at", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_breaks_a_rule_lets_nothing_go(record: tuple[bytes, bytes], at: int, reason: str) -> None:
    topic = Topic(4)
    said = topic.feed(at, *record)
    assert isinstance(said, Ignored)
    assert reason in said.reason
    assert topic.days == [0, 1, 2, 3]


def test_a_repeated_record_changes_nothing() -> None:
    topic = Topic(3)
    assert isinstance(topic.feed(NOW + 9 * DAY, *_changed()), Expired)
    assert isinstance(topic.feed(NOW + 9 * DAY, *_changed()), Ignored)
    assert topic.days == [1, 2]


def test_a_record_of_another_version_stops_the_reader() -> None:
    with pytest.raises(UnsupportedError, match=r"format 2; this one reads 1.*everywhere"):
        Topic(3).feed(NOW + 9 * DAY, *_changed(version=2))
