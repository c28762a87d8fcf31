"""The generations topic: what goes in comes out, and each rule of validity, one broken at a time."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.generation_records import (
    MAX_RECORD_BYTES,
    Expired,
    GenerationLog,
    Ignored,
    Proposal,
    PublishedGeneration,
    encode_proposal,
)
from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import LEEWAY_MS, Entry, Generation, Mark, StreamId, build_generation

Records = list[tuple[bytes, bytes]]

NOW = 1_760_000_000_000
SMALL = Ring((Node("a", "dc1", (1, -5)), Node("b", "dc2", (7,))))
LARGE = Ring(tuple(Node(f"h{n}", "dc1", tuple(random.Random(n).sample(range(2**62), 256))) for n in range(128)))


def _proposal(n: int, timestamp: int, predecessor: int | None = None, ring: Ring = SMALL) -> Proposal:
    generation = build_generation(ring, 2, 3, timestamp=timestamp, seed=ring_seed(ring, predecessor))
    return Proposal(uuid=UUID(int=n), predecessor=predecessor, ring=ring, generation=generation)


FIRST = _proposal(1, NOW)
SECOND = _proposal(2, NOW + 65_000, NOW)


class Topic:
    """The log, fed with offsets and append times as a broker would give them."""

    def __init__(self) -> None:
        self.log = GenerationLog()
        self._offset = 0

    def append(self, records: Records, at: int = NOW) -> list[PublishedGeneration | Expired | Ignored | None]:
        """What the log says of each record."""
        said = []
        for key, value in records:
            said.append(self.log.feed(self._offset, at, key, value))
            self._offset += 1
        return said

    def publish(self, proposal: Proposal, at: int = NOW) -> PublishedGeneration:
        """Append a proposal that must be accepted."""
        *chunks, last = self.append(list(encode_proposal(proposal)), at)
        assert chunks == [None] * len(chunks)
        assert isinstance(last, PublishedGeneration)
        return last

    def refuse(self, records: Records, reason: str, at: int = NOW) -> None:
        """Append records that must make no generation, the last for this reason."""
        before = self.log.published
        last = self.append(records, at)[-1]
        assert isinstance(last, Ignored)
        assert reason in last.reason
        assert self.log.published == before


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.mark.slow
@pytest.mark.parametrize("ring", [SMALL, LARGE])
def test_what_goes_in_comes_out(topic: Topic, ring: Ring) -> None:
    proposal = _proposal(9, NOW, ring=ring)
    published = topic.publish(proposal)
    assert published.unpack() == proposal
    assert (published.uuid, published.timestamp, published.predecessor) == (proposal.uuid, NOW, None)
    assert (published.appended, published.offset) == (NOW, len(encode_proposal(proposal)) - 1)
    assert topic.log.latest is published


def test_records_stay_below_the_limit() -> None:
    records = encode_proposal(_proposal(9, NOW, ring=LARGE))
    assert len(records) > 2
    assert max(len(value) for _, value in records) <= MAX_RECORD_BYTES
    assert [key.decode() for key, _ in records] == [
        *(f"{UUID(int=9)}/{i}" for i in range(len(records) - 1)),
        str(UUID(int=9)),
    ]


def test_the_records_are_as_the_contract_writes_them() -> None:
    (_, chunk), (_, commit) = encode_proposal(FIRST)
    line, data = chunk.split(b"\n", 1)
    digest = hashlib.sha256(data).hexdigest()
    assert json.loads(line) == {"version": 2, "predecessor": None, "i": 0, "n": 1, "sha256": digest}
    assert json.loads(commit) == {"version": 2, "uuid": str(FIRST.uuid), "timestamp": NOW, "n": 1, "sha256": digest}
    plain = zlib.decompress(data)
    start = 4 + int.from_bytes(plain[:4])
    header = {"predecessor": None, "nodes": [["a", "dc1"], ["b", "dc2"]], "entries": 3, "streams": 6}
    assert json.loads(plain[4:start]) == header
    columns = plain[start:]
    assert _column(columns[:24], 8) == [(-5).to_bytes(8, signed=True), (1).to_bytes(8), (7).to_bytes(8)]
    assert _column(columns[24:36], 4) == [(0).to_bytes(4), (0).to_bytes(4), (1).to_bytes(4)]
    assert _column(columns[36:48], 4) == [(2).to_bytes(4)] * 3
    assert columns[48:51] == bytes([3, 3, 3])
    assert _column(columns[51:], 16) == [stream.value for entry in FIRST.generation.entries for stream in entry.streams]


def _column(part: bytes, width: int) -> list[bytes]:
    """The elements of a column that stands byte by byte."""
    count = len(part) // width
    return [bytes(part[byte * count + row] for byte in range(width)) for row in range(count)]


def test_a_generation_of_another_ring_is_no_proposal() -> None:
    wrong = replace(FIRST, ring=LARGE)
    with pytest.raises(ValueError, match="do not end at the tokens"):
        encode_proposal(wrong)


def test_a_chain_of_generations(topic: Topic) -> None:
    one = topic.publish(FIRST)
    two = topic.publish(SECOND, at=NOW + 60_000)
    three = topic.publish(_proposal(3, NOW + 200_000, NOW + 65_000), at=NOW + 100_000)
    assert topic.log.published == (one, two, three)


# The rules of validity. Each row: what stands before, the records, when they are appended, why they are ignored.


def _broken(proposal: Proposal, at: int, change: Callable[[dict[str, Any]], None]) -> Records:
    """The records of a proposal, the JSON of one of them changed."""
    records = list(encode_proposal(proposal))
    key, value = records[at]
    line, end, behind = value.partition(b"\n")
    fields = json.loads(line)
    change(fields)
    records[at] = key, json.dumps(fields).encode() + end + behind
    return records


def _damaged(proposal: Proposal, at: int, place: int) -> Records:
    """The records of a proposal, one byte of one of them changed."""
    records = list(encode_proposal(proposal))
    key, value = records[at]
    broken = bytearray(value)
    broken[place] ^= 1
    records[at] = key, bytes(broken)
    return records


def _set(**fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: record.update(fields)


def _records(proposal: Proposal) -> Records:
    return list(encode_proposal(proposal))


DEADLINE = NOW + 65_000 - LEEWAY_MS
RULES = [
    ("another first", [FIRST], _records(_proposal(3, NOW + 9)), NOW, "superseded"),
    ("predecessor is not the latest", [FIRST, SECOND], _records(_proposal(3, NOW + 99_000, NOW)), NOW, "superseded"),
    ("predecessor unknown", [FIRST], _records(_proposal(3, NOW + 99_000, NOW + 1)), NOW, "the latest is"),
    ("first with a predecessor", [], _records(_proposal(3, NOW, NOW - 1)), NOW, "the latest is None"),
    ("same time", [FIRST], _records(_proposal(3, NOW, NOW)), NOW - 99_000, "not later than"),
    ("earlier", [FIRST], _records(_proposal(3, NOW - 1, NOW)), NOW - 99_000, "not later than"),
    ("late by a millisecond", [FIRST], _records(SECOND), DEADLINE + 1, "before its timestamp"),
    ("late for ever", [FIRST], _records(SECOND), NOW + 10**9, "before its timestamp"),
    ("commit before its chunks", [], _records(FIRST)[::-1][:1], NOW, "chunk is missing"),
    ("commit without one chunk", [], _records(_proposal(3, NOW, ring=LARGE))[1:], NOW, "chunk is missing"),
    ("n larger", [], _broken(FIRST, -1, _set(n=2)), NOW, "chunk is missing"),
    ("n smaller", [], _broken(_proposal(3, NOW, ring=LARGE), -1, _set(n=1)), NOW, "chunk is missing"),
    ("n huge", [], _broken(FIRST, -1, _set(n=2**62)), NOW, "chunk is missing"),
    ("n zero", [], _broken(FIRST, -1, _set(n=0)), NOW, "cannot be"),
    ("chunk of another n", [], _broken(FIRST, 0, _set(n=2)), NOW, "chunk is missing"),
    ("chunk of another place", [], _broken(FIRST, 0, _set(i=1)), NOW, "chunk is missing"),
    ("chunk of another version", [], _broken(FIRST, 0, _set(version=1)), NOW, "chunk is missing"),
    ("chunk of a later version", [], _broken(FIRST, 0, _set(version=3)), NOW, "chunk is missing"),
    ("chunk of version 0", [], _broken(FIRST, 0, _set(version=0)), NOW, "chunk is missing"),
    ("chunk with a wrong sum", [], _broken(FIRST, 0, _set(sha256="0" * 64)), NOW, "chunk is missing"),
    ("chunk with a flipped bit", [], _damaged(FIRST, 0, -1), NOW, "chunk is missing"),
    ("chunk without a line", [], _damaged(FIRST, 0, 0), NOW, "chunk is missing"),
    ("commit with a wrong sum", [], _broken(FIRST, -1, _set(sha256="0" * 64)), NOW, "not those that it commits"),
    ("commit of another", [], _broken(FIRST, -1, _set(uuid=str(UUID(int=8)))), NOW, "names another proposal"),
    ("timestamp is a text", [], _broken(FIRST, -1, _set(timestamp="1")), NOW, "field timestamp is not an integer"),
    ("timestamp is a boolean", [], _broken(FIRST, -1, _set(timestamp=True)), NOW, "field timestamp is not an integer"),
    ("timestamp beyond time", [], _broken(FIRST, -1, _set(timestamp=2**63)), NOW, "cannot be"),
    ("version is missing", [], _broken(FIRST, -1, lambda fields: fields.pop("version")), NOW, "field version"),
    ("no JSON", [], [(str(UUID(int=1)).encode(), b"{")], NOW, "not JSON"),
    ("no object", [], [(str(UUID(int=1)).encode(), b"[]")], NOW, "not a JSON object"),
    ("key is no uuid", [], [(b"x", b"{}")], NOW, "no proposal's"),
    ("key is no chunk", [], [(f"{UUID(int=1)}/x".encode(), b"{}")], NOW, "no proposal's"),
    ("key in another form", [], [(f"{UUID(int=1)}/01".encode(), b"{}")], NOW, "no proposal's"),
    ("key in braces", [], [(f"{{{UUID(int=1)}}}".encode(), b"{}")], NOW, "no proposal's"),
    ("key beyond ASCII", [], [("é".encode(), b"{}")], NOW, "no proposal's"),
]


@pytest.mark.promise("ring.in-time")
@pytest.mark.parametrize(
    ("before", "records", "at", "reason"), [row[1:] for row in RULES], ids=[row[0] for row in RULES]
)
def test_what_breaks_a_rule_is_ignored(
    topic: Topic, before: list[Proposal], records: Records, at: int, reason: str
) -> None:
    for proposal in before:
        topic.publish(proposal)
    topic.refuse(records, reason, at)


def test_a_proposal_in_time_to_the_millisecond(topic: Topic) -> None:
    topic.publish(FIRST, at=NOW + 10**9)
    topic.publish(SECOND, at=DEADLINE)


def test_a_record_without_key_or_value_is_ignored(topic: Topic) -> None:
    assert isinstance(topic.log.feed(0, NOW, None, b"{}"), Ignored)
    assert isinstance(topic.log.feed(1, NOW, str(UUID(int=1)).encode(), None), Ignored)
    topic.publish(FIRST)


@pytest.mark.parametrize("version", [1, 3])
def test_another_version_is_not_passed_over_in_silence(topic: Topic, version: int) -> None:
    with pytest.raises(UnsupportedError, match=rf"format {version}; this one reads 2.*everywhere"):
        topic.append(_broken(FIRST, -1, _set(version=version)))


def _with_description(packed: bytes) -> Records:
    """A proposal whose bytes are whole and are these."""
    digest = hashlib.sha256(packed).hexdigest()
    uuid = str(UUID(int=1))
    chunk = {"version": 2, "predecessor": None, "i": 0, "n": 1, "sha256": digest}
    commit = {"version": 2, "uuid": uuid, "timestamp": NOW, "n": 1, "sha256": digest}
    line = json.dumps(chunk).encode() + b"\n"
    return [(f"{uuid}/0".encode(), line + packed), (uuid.encode(), json.dumps(commit).encode())]


HEADER: dict[str, Any] = {"predecessor": None, "nodes": [["a", ""], ["b", ""]], "entries": 2, "streams": 3}
ENDS, HOLDERS, COUNTS, IGNORED = [100, 200], [1, 0], [1, 2], [0, 12]
IDS = [StreamId.of(token, 0, index).value for token, index in ((100, 0), (200, 1), (150, 1))]


def _columns(
    header: dict[str, Any] | None = None,
    *,
    ends: list[int] = ENDS,
    holders: list[int] = HOLDERS,
    counts: list[int] = COUNTS,
    ignored: list[int] = IGNORED,
    ids: list[bytes] = IDS,
    behind: bytes = b"",
) -> bytes:
    """A description, made here by the letter of its definition."""

    def column(rows: list[bytes]) -> bytes:
        return bytes(row[byte] for byte in range(len(rows[0]) if rows else 0) for row in rows)

    head = json.dumps({**HEADER, **(header or {})}).encode()
    columns = (
        column([end.to_bytes(8, signed=True) for end in ends]),
        column([holder.to_bytes(4) for holder in holders]),
        column([count.to_bytes(4) for count in counts]),
        bytes(ignored),
        column(ids),
    )
    return zlib.compress(b"".join((len(head).to_bytes(4), head, *columns)) + behind)


def test_columns_are_read_as_they_are_written_down(topic: Topic) -> None:
    topic.append(_with_description(_columns()))
    assert topic.log.latest is not None
    proposal = topic.log.latest.unpack()
    assert proposal.ring == Ring((Node("a", "", (200,)), Node("b", "", (100,))))
    first, second, third = map(StreamId, IDS)
    assert proposal.generation == Generation(NOW, (Entry(100, (first,)), Entry(200, (second, third), 12)))


COLUMNS = [
    # the bytes, why they are no description
    (_columns()[:-1], "cut"),
    (_columns() + b"x", "followed by other bytes"),
    (b"", "cut"),
    (b"plain", "no zlib stream"),
    (_columns({"predecessor": 5}), "another predecessor"),
    (_columns({"predecessor": "x"}), "no 64-bit integer"),
    (_columns({"nodes": [["a", ""]]}), "node 1 of 1"),
    (_columns({"nodes": [["a", ""], ["a", ""]]}), "stands in the ring twice"),
    (_columns({"nodes": 3}), "lacks or garbles"),
    (_columns({"nodes": [["a", ""], ["b"]]}), "lacks or garbles"),
    (_columns({"nodes": [["a", ""], 7]}), "lacks or garbles"),
    (_columns({"entries": 3}), "do not have the length"),
    (_columns({"streams": 2}), "do not have the length"),
    (_columns({"entries": -1}), "do not have the length"),
    (_columns({"entries": 2**62, "streams": 2**62}), "do not have the length"),
    (_columns({"entries": 2.0}), "no 64-bit integer"),
    (_columns({"entries": None}), "no 64-bit integer"),
    (_columns(behind=b"x"), "do not have the length"),
    (_columns(ends=[200, 100]), "not sorted"),
    (_columns(ends=[100, 100]), "held more than once"),
    (_columns(counts=[3, 0]), "no streams"),
    (_columns(counts=[1, 1]), "differ in length"),
    (_columns(counts=[2**32 - 1, 2**32 - 1]), "lacks or garbles"),
    (_columns(ignored=[0, 64]), "ignore_msb 64"),
    (_columns(ids=[IDS[0], IDS[1], bytes(16)]), "version 0"),
    (_columns({"entries": 0, "streams": 0}, ends=[], holders=[], counts=[], ignored=[], ids=[]), "no tokens"),
    (zlib.compress(b""), "not JSON"),
    (zlib.compress(b"\xff\xff\xff\xff"), "not JSON"),
    (zlib.compress(b"\0\0\0\2{}"), "lacks or garbles"),
]


@pytest.mark.parametrize(("packed", "reason"), COLUMNS, ids=range(len(COLUMNS)))
def test_columns_that_cannot_be(topic: Topic, packed: bytes, reason: str) -> None:
    topic.refuse(_with_description(packed), reason)


def test_no_cut_of_the_columns_is_a_description(topic: Topic) -> None:
    plain = zlib.decompress(_columns())
    for end in range(len(plain)):
        topic.append(_with_description(zlib.compress(plain[:end])))
    packed = _columns()
    for end in range(len(packed)):
        topic.append(_with_description(packed[:end]))
    assert topic.log.latest is None


# Several proposers


def _interleaved(proposals: list[Proposal], order: random.Random) -> Records:
    """All records of all proposals, each proposal's own in order, otherwise mixed."""
    queues = [_records(proposal) for proposal in proposals]
    mixed = []
    while queues := [queue for queue in queues if queue]:
        mixed.append(order.choice(queues).pop(0))
    return mixed


@given(st.integers(2, 6), st.integers())
def test_of_several_firsts_exactly_one_is_accepted(count: int, seed: int) -> None:
    topic = Topic()
    proposals = [_proposal(n, NOW + n, ring=SMALL) for n in range(count)]
    mixed = _interleaved(proposals, random.Random(seed))
    topic.append(mixed)
    (winner,) = topic.log.published
    commits = [key for key, _ in mixed if b"/" not in key]
    assert str(winner.uuid).encode() == commits[0]
    assert winner.unpack() == proposals[winner.uuid.int]


@given(st.integers())
def test_every_reader_agrees_wherever_it_looks(seed: int) -> None:
    """Readers that see a prefix of the topic know a prefix of its generations."""
    order = random.Random(seed)
    proposals = [FIRST, SECOND, _proposal(3, NOW + 70_000, NOW), _proposal(4, NOW + 200_000, NOW + 65_000)]
    topic = Topic()
    seen = []
    for record in _interleaved(proposals, order):
        topic.append([record])
        seen.append(topic.log.published)
    for before, after in pairwise(seen):
        assert after[: len(before)] == before


def test_competing_chunks_are_held_once_and_let_go() -> None:
    topic = Topic()
    for n in range(5):
        topic.append(_records(_proposal(n, NOW + n))[:-1])
    assert len({id(part) for chunks in topic.log._pending.values() for _, part in chunks.parts.values()}) == 1
    topic.append(_records(_proposal(0, NOW))[-1:])
    assert topic.log.latest is not None
    assert not topic.log._pending
    topic.append(_records(_proposal(9, NOW))[:-1])
    assert not topic.log._pending


# Which one operated


def test_no_generation_operates_before_the_first_is_known(topic: Topic) -> None:
    assert topic.log.operating(NOW * 1000) is None


def test_the_generation_that_operated_at_a_write_time(topic: Topic) -> None:
    one, two = topic.publish(FIRST), topic.publish(SECOND)
    known = NOW + 70_000
    assert topic.log.operating((NOW - 1) * 1000, known) == (one, Mark.BEFORE_FIRST)
    assert topic.log.operating(NOW * 1000, known) == (one, None)
    assert topic.log.operating((NOW + 65_000) * 1000 - 1, known) == (one, None)
    assert topic.log.operating((NOW + 65_000) * 1000, known) == (two, None)
    assert topic.log.operating((known + 1) * 1000 - 1, known) == (two, None)
    assert topic.log.operating((known + 1) * 1000, known) == (two, Mark.AHEAD)
    assert topic.log.operating((known + 1) * 1000) == (two, None)


@given(st.binary(max_size=60) | st.none(), st.binary(max_size=200) | st.none())
def test_no_record_breaks_the_log(key: bytes | None, value: bytes | None) -> None:
    topic = Topic()
    topic.publish(FIRST)
    assert not isinstance(topic.log.feed(9, NOW, key, value), PublishedGeneration)
