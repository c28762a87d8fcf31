"""Stream ids bit for bit; generations of any ring, against the rules as they are written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import CorruptError, UnsupportedError
from tailrace_schemas.generation_records import (
    Expired,
    GenerationLog,
    Ignored,
    Proposal,
    PublishedGeneration,
    encode_expired,
    encode_proposal,
)
from tailrace_schemas.ring import Node, Ring, RingError, ring_seed
from tailrace_schemas.streams import (
    LEEWAY_MS,
    Entry,
    Generation,
    Mark,
    StreamId,
    build_generation,
    differences,
    keep_from,
    stream_for,
)
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN

TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)

IDS = [
    # token, random, index, the sixteen bytes
    (100, 0, 0, "00000000000000640000000000000001"),
    (-1, 2**38 - 1, 2**22 - 1, "fffffffffffffffffffffffffffffff1"),
    (-9223372036854775807, 1, 5, "80000000000000010000000004000051"),
]
DAY = 86_400_000
NOW = 1_760_000_000_000
RING = Ring((Node("a", "dc1", (1, -5)), Node("b", "dc2", (7,))))

KEPT = [
    # timestamps, now, retentions, the oldest that stays
    ([], 100, [10], None),
    ([1, 90], 100, [10], 90),
    ([1, 91], 100, [10], None),
    ([1, 20, 50, 95], 100, [10, None], None),
    ([1, 20, 50, 95], 100, [], None),
    ([1, 20, 50, 105], 100, [0], 50),
]


@pytest.mark.parametrize(("token", "bits", "index", "text"), IDS)
def test_stream_id_bits(token: int, bits: int, index: int, text: str) -> None:
    stream = StreamId.of(token, bits, index)
    assert stream.value.hex() == text
    assert str(stream) == f"0x{text}"
    assert StreamId.parse(text) == StreamId.parse(f"0x{text.upper()}") == stream
    assert (stream.token, stream.random, stream.index) == (token, bits, index)


@given(TOKENS, st.integers(0, 2**38 - 1), st.integers(0, 2**22 - 1))
def test_stream_id_gives_its_parts_back(token: int, bits: int, index: int) -> None:
    stream = StreamId(StreamId.of(token, bits, index).value)
    assert (stream.token, stream.random, stream.index) == (token, bits, index)
    assert int.from_bytes(stream.value, "big") & 15 == 1


@pytest.mark.parametrize("version", [v for v in range(16) if v != 1])
def test_other_versions_are_rejected(version: int) -> None:
    with pytest.raises(CorruptError, match=f"version {version};"):
        StreamId(bytes(15) + bytes([version]))


@pytest.mark.parametrize("length", [0, 1, 15, 17, 32])
def test_other_lengths_are_rejected(length: int) -> None:
    with pytest.raises(CorruptError, match=f"not {length}"):
        StreamId((b"\x01" * length)[:length])


@pytest.mark.parametrize(
    "text", ["", "0x", "1" * 31, "1" * 33, "0X" + "1" * 32, "g" * 32, " " + "1" * 32, "11 " * 16, "1" * 32 + "\n"]
)
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(CorruptError):
        StreamId.parse(text)


@pytest.mark.parametrize(
    ("token", "bits", "index"), [(2**63, 0, 0), (-(2**63) - 1, 0, 0), (0, 2**38, 0), (0, -1, 0), (0, 0, 2**22)]
)
def test_parts_that_do_not_fit(token: int, bits: int, index: int) -> None:
    with pytest.raises(ValueError, match="no stream id"):
        StreamId.of(token, bits, index)


def test_ids_sort_as_unsigned_bytes() -> None:
    ids = [StreamId.of(token, 0, 0) for token in (-1, 5, MIN_TOKEN, 0, MAX_TOKEN)]
    assert [stream.token for stream in sorted(ids)] == [0, 5, MAX_TOKEN, MIN_TOKEN, -1]


def test_each_entry_counts_its_own_streams() -> None:
    def streams(count: int, index: int) -> tuple[StreamId, ...]:
        return tuple(StreamId.of(0, n, index) for n in range(count))

    generation = Generation(0, (Entry(0, streams(1, 0)), Entry(MAX_TOKEN, streams(4, 1), 12)))
    assert stream_for(generation, -1).random == 0
    assert stream_for(generation, MAX_TOKEN).random == 3
    assert [stream_for(generation, (1 << 52) + n * (1 << 50)).random for n in range(4)] == [0, 1, 2, 3]


# Rings; what holds for each of them is in test_rings.py


def _ring(tokens: Sequence[Sequence[int]]) -> Ring:
    return Ring(tuple(Node(f"host-{n}", "dc1", tuple(held)) for n, held in enumerate(tokens)))


def test_a_wrapping_range_is_searched_to_the_maximum_then_from_the_minimum() -> None:
    first = build_generation(_ring([[-4611686018427387904, 4611686018427387904]]), 4, timestamp=0, seed=0).entries[0]
    # Shard 3 begins right after the last token; shard 0 at the minimum; 1 and 2 own only the range's end, or nothing.
    assert [stream.token for stream in first.streams] == [MIN_TOKEN + 1, -4611686018427387904, -(2**62), 2**62 + 1]


@given(st.integers(), st.integers())
def test_equal_seeds_draw_equal_streams(one: int, other: int) -> None:
    a = build_generation(RING, 2, timestamp=7, seed=one)
    assert build_generation(Ring(RING.nodes[::-1]), 2, timestamp=7, seed=one) == a
    b = build_generation(RING, 2, timestamp=7, seed=other)
    assert (a == b) == (one == other)


GOLDEN = [
    "0x8000000000000001df70561c50000001",
    "0x000000000000006538c5852b70000001",
    "0x00000000000000321744312d68000011",
    "0x0000000000000001fab57bb028000011",
    "0x0000000000000064806925a180000021",
    "0x000000000000003310023f5414000021",
]


def test_the_random_bits_of_a_seed_stay_the_same() -> None:
    generation = build_generation(_ring([[0, 100], [50]]), 2, timestamp=7, seed=42)
    assert [str(stream) for entry in generation.entries for stream in entry.streams] == GOLDEN


@pytest.mark.parametrize(("per_entry", "ignore_msb"), [(0, 0), (-1, 0), (1, -1), (1, 64)])
def test_impossible_settings(per_entry: int, ignore_msb: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        build_generation(_ring([[0]]), per_entry, ignore_msb, timestamp=0, seed=0)


BAD_RINGS = [
    ((), "no tokens"),
    ((Node("a", "", ()),), "no tokens"),
    ((Node("a", "", (1, 1)),), "token 1 is held more than once, by a"),
    ((Node("a", "", (1,)), Node("b", "", (2, 1))), "token 1 is held more than once, by a and b"),
    ((Node("a", "", (1,)), Node("a", "", (2,))), "host a stands in the ring twice"),
    ((Node("a", "", (2**63,)),), "9223372036854775808 is outside"),
]


@pytest.mark.parametrize(("nodes", "message"), BAD_RINGS)
def test_rings_that_cannot_be(nodes: tuple[Node, ...], message: str) -> None:
    with pytest.raises(RingError, match=message):
        Ring(nodes)


def test_rings_are_equal_whatever_the_order_and_the_state() -> None:
    one = Ring((Node("b", "dc", (3, 1)), Node("a", "dc", (2,))))
    other = Ring((Node("a", "dc", (2,)), Node("b", "dc", (1, 3), normal=False)))
    assert one == other
    assert ring_seed(one, None) == ring_seed(other, None)
    assert (one.normal, other.normal) == (True, False)
    assert one.owner()[3].host == "b"


def test_the_seed_depends_on_ring_and_predecessor() -> None:
    ring = Ring((Node("a", "dc", (1,)),))
    others = [Ring((Node("a", "dc", (2,)),)), Ring((Node("b", "dc", (1,)),)), Ring((Node("a", "dc2", (1,)),))]
    seeds = {ring_seed(ring, None), ring_seed(ring, 0), ring_seed(ring, 1), *(ring_seed(r, None) for r in others)}
    assert len(seeds) == 6
    assert all(0 <= seed < 2**256 for seed in seeds)


# Generations in time


def test_differences_applied_to_the_old_set_give_the_new() -> None:
    a, b, c, d = (StreamId.of(token, 0, 0) for token in (10, 20, 30, 50))
    old = Generation(1, (Entry(10, (a,)), Entry(20, (b,)), Entry(30, (c,))))
    new = Generation(2, (Entry(10, (a,)), Entry(30, (c,)), Entry(50, (d,))))
    found = differences(old, new)
    assert found == (frozenset({b}), frozenset({d}))
    assert (old.streams() - found.closed) | found.opened == new.streams()
    assert differences(new, new) == (frozenset(), frozenset())


BAD_ENTRIES = [
    ((), "has no entries"),
    ((Entry(2, (StreamId.of(2, 0, 0),)), Entry(1, (StreamId.of(1, 0, 1),))), "not sorted: range end 1 stands after 2"),
    ((Entry(1, (StreamId.of(1, 0, 0),)), Entry(1, (StreamId.of(1, 0, 1),))), "not sorted"),
]


@pytest.mark.parametrize(("entries", "message"), BAD_ENTRIES)
def test_generations_that_cannot_be(entries: tuple[Entry, ...], message: str) -> None:
    with pytest.raises(CorruptError, match=message):
        Generation(0, entries)


def test_an_entry_needs_a_stream_and_a_possible_shift() -> None:
    with pytest.raises(CorruptError, match="token 5 has no streams"):
        Entry(5, ())
    with pytest.raises(CorruptError, match="ignore_msb 64"):
        Entry(5, (StreamId.of(5, 0, 0),), 64)


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
