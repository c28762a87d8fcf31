"""What holds for the generation of any ring, and any token: against the model in its simplest form."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import Generation, StreamId, build_generation, operating, shard, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tests.properties import examples
from tests.unit.schemas.naive import enumerated_token, naive_place, naive_replicas, naive_shard, naive_token

TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)
EDGES = [MIN_TOKEN, MIN_TOKEN + 1, -1, 0, 1, MAX_TOKEN - 1, MAX_TOKEN]
FACTORS = (1, 2, 3, 5)


def drawn_ring(drawn: random.Random, nodes: int, most_tokens: int) -> Ring:
    """A ring whose nodes have 1 to `most_tokens` tokens each: anywhere, close together, in rows, and at the edges."""
    wanted = [drawn.randint(1, most_tokens) for _ in range(nodes)]
    found: set[int] = set(drawn.sample(EDGES, drawn.randint(0, min(3, sum(wanted)))))
    while len(found) < sum(wanted):
        near, reach = drawn.randint(MIN_TOKEN, MAX_TOKEN), 1 << drawn.choice([0, 4, 20, 50, 64, 64, 64])
        for _ in range(drawn.randint(1, sum(wanted) - len(found))):
            token = near + drawn.randrange(-reach, reach + 1)
            if MIN_TOKEN <= token <= MAX_TOKEN:
                found.add(token)
    tokens = sorted(found)[: sum(wanted)]
    drawn.shuffle(tokens)
    held, at = [], 0
    for number, count in enumerate(wanted):
        held.append(Node(f"host-{number:04}", f"dc{number % 3}", tuple(tokens[at : at + count])))
        at += count
    return Ring(tuple(held))


def probes_of(drawn: random.Random, ring: Ring, count: int) -> list[int]:
    """Tokens: the edges, ends of ranges and what stands beside them, and any."""
    ends = ring.tokens
    near = [end + d for end in drawn.choices(ends, k=count) for d in (-1, 0, 1) if MIN_TOKEN <= end + d <= MAX_TOKEN]
    return [*EDGES, *near, *(drawn.randint(MIN_TOKEN, MAX_TOKEN) for _ in range(count))]


def check_streams(generation: Generation, ends: Sequence[int], per_entry: int, ignore_msb: int) -> None:
    """The form of the whole generation: order of entries and streams, and that each id stands once."""
    entries = generation.entries
    assert list(entries.range_ends) == list(ends)
    assert entries.stream_count == len(ends) * per_entry
    ids = [entries.ids[at : at + 16] for at in range(0, len(entries.ids), 16)]
    assert len(set(ids)) == len(ids)
    assert set(entries.ignore_msb) == {ignore_msb}


def check_entries(generation: Generation, places: Sequence[int], per_entry: int, ignore_msb: int) -> None:
    """Every stream of these entries: its token by the rule, its index, and that they stand in shard order."""
    ends = generation.entries.range_ends
    for place in places:
        entry = generation.entries[place]
        assert len(entry.streams) == per_entry
        for number, stream in enumerate(entry.streams):
            assert stream.index == place
            assert stream.value[15] & 15 == 1
            assert stream.token == naive_token(ends[place - 1], ends[place], per_entry, ignore_msb, number)


def check_tokens(
    ring: Ring, generation: Generation, probes: Sequence[int], per_entry: int, ignore_msb: int
) -> list[StreamId]:
    """Each token has one stream, by range and shard, and that stream's token has its range, hence its replicas."""
    ends = ring.tokens
    owners = sorted((token, node.host) for node in ring.nodes for token in node.tokens)
    streams = []
    for token in probes:
        stream = stream_for(generation, token)
        place = naive_place(ends, token)
        assert generation.entries[place].streams[naive_shard(per_entry, ignore_msb, token)] == stream
        assert naive_place(ends, stream.token) == place
        for factor in FACTORS:
            assert naive_replicas(owners, stream.token, factor) == naive_replicas(owners, token, factor)
        streams.append(stream)
    return streams


@pytest.mark.promise("ring.same-replicas", "ring.one-stream-per-token")
@pytest.mark.slow
@settings(max_examples=examples(20), deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.sampled_from([1, 1, 2, 3, 8, 40]) | st.integers(1, 60),
    st.integers(1, 6),
    st.integers(1, 20),
    st.integers(0, 63),
    st.integers(),
)
def test_any_ring_and_any_token(
    drawn: random.Random, nodes: int, most_tokens: int, per_entry: int, ignore_msb: int, seed: int
) -> None:
    ring = drawn_ring(drawn, nodes, most_tokens)
    generation = build_generation(ring, per_entry, ignore_msb, timestamp=7, seed=seed)
    check_streams(generation, ring.tokens, per_entry, ignore_msb)
    check_entries(generation, range(len(ring.tokens)), per_entry, ignore_msb)
    streams = check_tokens(ring, generation, probes_of(drawn, ring, 8), per_entry, ignore_msb)
    assert [stream.value for stream in sorted(streams)] == sorted(stream.value for stream in streams)


SIZES = [(1, 256, 4096, 0), (1000, 1, 1, 0), (1000, 16, 2, 12), (250, 64, 3, 63)]


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "most_tokens", "per_entry", "ignore_msb"), SIZES)
def test_large_rings(nodes: int, most_tokens: int, per_entry: int, ignore_msb: int) -> None:
    check_sampled(random.Random(nodes), nodes, most_tokens, per_entry, ignore_msb, sample=30)


@pytest.mark.promise("ring.same-replicas")
@pytest.mark.long
@pytest.mark.parametrize("block", range(10))
def test_fifty_rings_of_any_size(block: int) -> None:
    """1 to 1,000 nodes, 1 to 256 tokens each, up to two million streams; the largest first."""
    counted = 0
    for seed in range(5 * block, 5 * block + 5):
        drawn = random.Random(seed)
        nodes, most_tokens = (1000, 256) if seed == 0 else (drawn.randint(1, 1000), drawn.randint(1, 256))
        most = max(1, 2_100_000 // (nodes * most_tokens))
        per_entry, ignore_msb = drawn.randint(1, min(most, 512)), drawn.choice([0, 12, drawn.randint(0, 63)])
        counted += check_sampled(drawn, nodes, most_tokens, per_entry, ignore_msb, sample=40)
    assert counted > 1_000_000


def check_sampled(
    drawn: random.Random, nodes: int, most_tokens: int, per_entry: int, ignore_msb: int, sample: int
) -> int:
    """A ring and its generation whole, streams and tokens by sample; how many streams it has."""
    ring = drawn_ring(drawn, nodes, most_tokens)
    seed = ring_seed(ring, drawn.choice([None, 5]))
    generation = build_generation(ring, per_entry, ignore_msb, timestamp=7, seed=seed)
    assert generation == build_generation(ring, per_entry, ignore_msb, timestamp=7, seed=seed)
    check_streams(generation, ring.tokens, per_entry, ignore_msb)
    last = len(ring.tokens) - 1
    places = {0, last, *(drawn.randint(0, last) for _ in range(sample))}
    check_entries(generation, sorted(places), per_entry, ignore_msb)
    check_tokens(ring, generation, drawn.sample(probes_of(drawn, ring, sample), sample), per_entry, ignore_msb)
    return generation.entries.stream_count


@pytest.mark.slow
@pytest.mark.promise("ring.one-stream-per-token")
@settings(max_examples=examples(80), deadline=None)
@given(TOKENS, st.integers(0, 300), st.integers(1, 12), st.integers(56, 63))
def test_a_streams_token_by_looking_at_every_token_of_its_range(
    start: int, length: int, per_entry: int, ignore_msb: int
) -> None:
    """Blocks of at most 256 tokens; ranges of a few of them, also over the ring's end, and the rest of the ring."""
    end = (start - MIN_TOKEN + length) % 2**64 + MIN_TOKEN
    ring = Ring((Node("a", "dc", tuple({start, end})),))
    generation = build_generation(ring, per_entry, ignore_msb, timestamp=7, seed=0)
    ends = ring.tokens
    for place, entry in enumerate(generation.entries):
        for number, stream in enumerate(entry.streams):
            expected = enumerated_token(ends[place - 1], ends[place], per_entry, ignore_msb, number)
            assert stream.token == expected
            assert naive_token(ends[place - 1], ends[place], per_entry, ignore_msb, number) == expected


@given(st.integers(1, 2**22), st.integers(0, 63), TOKENS)
def test_the_shard_of_any_token(n: int, ignore_msb: int, token: int) -> None:
    assert shard(n, ignore_msb, token) == naive_shard(n, ignore_msb, token)


TWICE = 21
"""A seed that draws the same 38 bits twice for the second entry."""


@pytest.mark.promise("ring.one-stream-per-token")
@pytest.mark.slow
def test_ids_that_would_stand_twice_get_other_random_bits() -> None:
    """Streams of an entry that has fewer tokens than streams share one; of so many, two draw the same 38 bits."""
    per_entry = 1 << 17
    ring = Ring((Node("a", "dc", (0, 1)),))
    [first, second] = build_generation(ring, per_entry, timestamp=7, seed=TWICE).entries
    assert {stream.token for stream in second.streams} == {1}
    bits = hashlib.shake_256(f"tailrace streams {TWICE}".encode()).digest(2 * 5 * per_entry)[5 * per_entry :]
    drawn = [int.from_bytes(bits[at : at + 5]) >> 2 for at in range(0, len(bits), 5)]
    [twice] = [number for number, count in Counter(drawn).items() if count > 1]
    later = len(drawn) - 1 - drawn[::-1].index(twice)
    drawn[later] += 1
    assert [stream.random for stream in second.streams] == drawn
    assert len(set(first.streams)) == len(set(second.streams)) == per_entry


@given(st.sets(st.integers(-(10**6), 10**6), min_size=1, max_size=6), st.integers(-(2**31), 2**31), st.data())
def test_a_generation_operates_from_its_timestamp_to_the_next(
    timestamps: set[int], anywhere: int, data: st.DataObject
) -> None:
    """Each write time belongs to exactly one of [timestamp, next timestamp), or is before the first."""
    ascending = sorted(timestamps)
    borders = [timestamp * 1000 + d for timestamp in ascending for d in (-1, 0, 1, 999)]
    written = data.draw(st.just(anywhere) | st.sampled_from(borders))
    ends = [*ascending[1:], 2**63]
    holding = [
        n for n, (begin, end) in enumerate(zip(ascending, ends, strict=True)) if begin * 1000 <= written < end * 1000
    ]
    place, mark = operating(ascending, written)
    if holding:
        assert [place] == holding
        assert mark is None
    else:
        assert (place, mark) == (0, "before_first")
        assert written < ascending[0] * 1000


def test_the_oracle_walks_the_ring_as_cassandra_does() -> None:
    """Cassandra's own example, in TokenMetadata.ringIterator: the owner of a token is the first at it or after it."""
    owners = [(10, "a"), (20, "b"), (30, "a"), (40, "c")]
    assert naive_replicas(owners, 10, 2) == ["a", "b"]
    assert naive_replicas(owners, 11, 2) == ["b", "a"]
    assert naive_replicas(owners, 21, 3) == ["a", "c", "b"]
    assert naive_replicas(owners, 41, 2) == ["a", "b"]
    assert naive_replicas(owners, MIN_TOKEN, 9) == ["a", "b", "c"]
