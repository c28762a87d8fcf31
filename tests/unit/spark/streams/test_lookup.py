"""Columns against the scalar rules, row by row."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace_schemas.generation_records import GenerationLog, Proposal, encode_proposal
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Entry, Generation, Mark, StreamId, build_generation, operating, stream_for
from tailrace_schemas.tokens import MAX_TOKEN, MIN_TOKEN
from tailrace_spark.streams.lookup import MARKS, AssignmentColumns, StreamTable, UnpackedGenerations
from tests.properties import examples

TOKENS = st.integers(MIN_TOKEN, MAX_TOKEN)


@st.composite
def generations(draw: st.DrawFn) -> list[Generation]:
    """Up to four generations, with one stream per entry, or several, or differing numbers of them."""
    timestamps = sorted(draw(st.sets(st.integers(-5_000, 5_000), min_size=1, max_size=4)))
    return [draw(_generation(timestamp)) for timestamp in timestamps]


@st.composite
def _generation(draw: st.DrawFn, timestamp: int) -> Generation:
    ends = sorted(draw(st.sets(TOKENS | st.sampled_from([MIN_TOKEN, -1, 0, MAX_TOKEN]), min_size=1, max_size=12)))
    if draw(st.booleans()):
        ring = Ring((Node("a", "dc", tuple(ends)),))
        return build_generation(ring, draw(st.integers(1, 9)), draw(st.integers(0, 63)), timestamp=timestamp, seed=0)
    entries = []
    for index, end in enumerate(ends):
        count = draw(st.integers(1, 5) | st.just(1000))
        streams = tuple(StreamId.of(end, n, index) for n in range(count))
        entries.append(Entry(end, streams, draw(st.integers(0, 63))))
    return Generation(timestamp, tuple(entries))


def _assign(table: StreamTable, rows: list[tuple[int, int]]) -> AssignmentColumns:
    tokens = np.array([token for token, _ in rows], dtype=np.int64)
    return table.assign(tokens, np.array([written for _, written in rows], dtype=np.int64))


@pytest.mark.slow
@pytest.mark.promise("stream.generation-of-write-time")
@settings(max_examples=examples(16))
@given(
    generations(),
    st.none() | st.integers(-6_000, 6_000),
    st.lists(st.tuples(TOKENS, st.integers(-6_000_000, 6_000_000) | TOKENS), max_size=30),
    st.data(),
)
def test_equal_to_the_scalar_rules(
    known: list[Generation], until: int | None, rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    ends = [entry.token_range_end for generation in known for entry in generation.entries]
    near = [end + d for end in ends for d in (-1, 0, 1) if MIN_TOKEN <= end + d <= MAX_TOKEN]
    edges = [g.timestamp * 1000 + d for g in known for d in (-1, 0, 999)]
    rows += data.draw(st.lists(st.tuples(st.sampled_from(near), st.sampled_from(edges)), max_size=30))
    assigned = _assign(StreamTable.of(known, until), rows)
    streams = assigned.stream_column().to_pylist()
    for row, (token, written) in enumerate(rows):
        place, mark = operating([g.timestamp for g in known], written, until)
        assert streams[row] == stream_for(known[place], token).value
        assert assigned.generations[row] == known[place].timestamp
        assert MARKS[assigned.marks[row]] == mark


@pytest.mark.parametrize("ignore_msb", [0, 1, 12])
@pytest.mark.parametrize("count", [2, 3, 7, 1000])
def test_every_shard_begins_at_the_same_token(count: int, ignore_msb: int) -> None:
    """Where one shard ends and the next begins, the product's lowest bits decide."""
    generation = build_generation(Ring((Node("a", "dc", (MAX_TOKEN,)),)), count, ignore_msb, timestamp=0, seed=0)
    begins = [MIN_TOKEN - (-(n << (64 - ignore_msb)) // count) for n in range(1, count)]
    rows = [(begin + d, 0) for begin in begins for d in (-1, 0)]
    streams = _assign(StreamTable.of([generation]), rows).stream_column().to_pylist()
    assert streams == [stream_for(generation, token).value for token, _ in rows]
    assert streams[0] != streams[1]


RINGS = {
    "evenly": range(MIN_TOKEN + 5, MAX_TOKEN, 2**58),
    "all in one share": range(256),
    "one": [0],
    "two at the ends": [MIN_TOKEN, MAX_TOKEN],
    "many below, few above": [*range(MIN_TOKEN, MIN_TOKEN + 90), 0, MAX_TOKEN - 1],
    "many above": [-5, *range(MAX_TOKEN - 90, MAX_TOKEN + 1)],
}


@pytest.mark.parametrize("ends", RINGS.values(), ids=RINGS.keys())
@pytest.mark.parametrize("per_entry", [1, 3])
def test_wherever_the_tokens_of_the_ring_stand(ends: Sequence[int], per_entry: int) -> None:
    """An entry is looked for where an even ring would have it; in others it is found all the same."""
    generation = build_generation(Ring((Node("a", "dc", tuple(ends)),)), per_entry, timestamp=0, seed=0)
    drawn = random.Random(1)
    near = [end + d for end in ends for d in (-1, 0, 1) if MIN_TOKEN <= end + d <= MAX_TOKEN]
    tokens = [*near, MIN_TOKEN, MAX_TOKEN, *(drawn.randrange(MIN_TOKEN, MAX_TOKEN) for _ in range(500))]
    streams = _assign(StreamTable.of([generation]), [(token, 0) for token in tokens]).stream_column().to_pylist()
    assert streams == [stream_for(generation, token).value for token in tokens]


def test_an_empty_batch() -> None:
    table = StreamTable.of([build_generation(Ring((Node("a", "dc", (0,)),)), timestamp=0, seed=0)])
    assigned = _assign(table, [])
    assert (assigned.stream_column().to_pylist(), assigned.marks.tolist()) == ([], [])


def test_streams_have_a_type_that_spark_takes() -> None:
    table = StreamTable.of([build_generation(Ring((Node("a", "dc", (0,)),)), timestamp=10, seed=0)], 20)
    assigned = _assign(table, [(0, 9_999), (0, 10_000), (0, 20_999), (0, 21_000)])
    assert assigned.stream_column().type == pa.binary()
    assert [MARKS[mark] for mark in assigned.marks] == [Mark.BEFORE_FIRST, None, None, Mark.AHEAD]
    assigned.stream_column().validate(full=True)


def test_a_slice_of_a_column_is_read_from_its_own_start() -> None:
    """Arrow batches are often slices; numpy views of them need not be contiguous either."""
    generation = build_generation(Ring((Node("a", "dc", (-5, 0, 5)),)), 3, timestamp=0, seed=0)
    tokens = np.arange(-20, 20, dtype=np.int64)
    whole = StreamTable.of([generation]).assign(tokens, np.zeros(40, dtype=np.int64)).stream_column().to_pylist()
    part = StreamTable.of([generation]).assign(tokens[4::3], np.zeros(12, dtype=np.int64))
    assert part.stream_column().to_pylist() == whole[4::3]


def test_a_table_travels_to_executors() -> None:
    table = StreamTable.of([build_generation(Ring((Node("a", "dc", (0, 9)),)), 2, timestamp=0, seed=0)], 7)
    there = pickle.loads(pickle.dumps(table))  # noqa: S301 - our own bytes
    rows = [(token, 8_000) for token in (-1, 5, 10)]
    assert _assign(there, rows).streams.tobytes() == _assign(table, rows).streams.tobytes()
    assert there.known_until == 7


def test_published_generations_will_do_as_they_are() -> None:
    ring = Ring((Node("a", "dc", (0, 9)),))
    generation = build_generation(ring, timestamp=0, seed=0)
    log = GenerationLog()
    proposal = Proposal(uuid=UUID(int=1), predecessor=None, ring=ring, generation=generation)
    for offset, (key, value) in enumerate(encode_proposal(proposal)):
        log.feed(offset, 0, key, value)
    rows = [(token, 8_000) for token in (-1, 5, 10)]
    unpacked = UnpackedGenerations()
    first, later = (unpacked.table(log.published, known_until) for known_until in (7, 8))
    published = _assign(first, rows)
    assert published.stream_column() == _assign(StreamTable.of([generation]), rows).stream_column()
    assert [MARKS[mark] for mark in published.marks] == [Mark.AHEAD] * 3
    assert [MARKS[mark] for mark in _assign(later, rows).marks] == [None] * 3
    assert later.generations is first.generations


def test_generations_must_ascend() -> None:
    generation = build_generation(Ring((Node("a", "dc", (0,)),)), timestamp=10, seed=0)
    for wrong in ([], [generation, generation]):
        with pytest.raises(ValueError, match="ascending"):
            StreamTable.of(wrong)
