"""The generations topic: what goes in comes out, and each rule of validity, one broken at a time."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.errors import UnsupportedError
from tailrace_schemas.generations import (
    MAX_RECORD_BYTES,
    Expired,
    GenerationLog,
    Ignored,
    Proposal,
    PublishedGeneration,
    encode_proposal,
)
from tailrace_schemas.ring import Node, Ring, ring_seed
from tailrace_schemas.streams import LEEWAY_MS, Mark, build_generation

Records = list[tuple[bytes, bytes]]

NOW = 1_760_000_000_000
SMALL = Ring((Node("a", "dc1", (1, -5)), Node("b", "dc2", (7,))))
LARGE = Ring(tuple(Node(f"h{n}", "dc1", tuple(random.Random(n).sample(range(2**62), 256))) for n in range(64)))


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
    """An empty topic."""
    return Topic()


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
    fields = json.loads(chunk)
    data = base64.b64decode(fields["data"])
    digest = hashlib.sha256(data).hexdigest()
    assert {**fields, "data": None} == {
        "version": 1,
        "predecessor": None,
        "i": 0,
        "n": 1,
        "sha256": digest,
        "data": None,
    }
    assert json.loads(commit) == {"version": 1, "uuid": str(FIRST.uuid), "timestamp": NOW, "n": 1, "sha256": digest}
    description = json.loads(zlib.decompress(data))
    assert description["nodes"] == [["a", "dc1", [-5, 1]], ["b", "dc2", [7]]]
    assert [entry[:2] for entry in description["entries"]] == [[-5, 3], [1, 3], [7, 3]]


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
    fields = json.loads(value)
    change(fields)
    records[at] = key, json.dumps(fields).encode()
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
    ("chunk of another version", [], _broken(FIRST, 0, _set(version=2)), NOW, "chunk is missing"),
    ("chunk with a wrong sum", [], _broken(FIRST, 0, _set(sha256="0" * 64)), NOW, "chunk is missing"),
    ("chunk that is no base64", [], _broken(FIRST, 0, _set(data="*")), NOW, "chunk is missing"),
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


def test_a_later_version_is_not_passed_over_in_silence(topic: Topic) -> None:
    with pytest.raises(UnsupportedError, match="version 2"):
        topic.append(_broken(FIRST, -1, _set(version=2)))


def _with_description(text: bytes) -> Records:
    """A proposal whose bytes are whole and hold this."""
    digest = hashlib.sha256(text).hexdigest()
    uuid = str(UUID(int=1))
    chunk = {
        "version": 1,
        "predecessor": None,
        "i": 0,
        "n": 1,
        "sha256": digest,
        "data": base64.b64encode(text).decode(),
    }
    commit = {"version": 1, "uuid": uuid, "timestamp": NOW, "n": 1, "sha256": digest}
    return [(f"{uuid}/0".encode(), json.dumps(chunk).encode()), (uuid.encode(), json.dumps(commit).encode())]


STREAM = "00000000000000640000000000000001"
GOOD: dict[str, Any] = {"predecessor": None, "nodes": [["a", "", [100]]], "entries": [[100, 0, [STREAM]]]}
DESCRIPTIONS = [
    ({"predecessor": 5}, "another predecessor"),
    ({"nodes": []}, "no tokens"),
    ({"nodes": [["a", "", [1, 1]]]}, "held more than once"),
    ({"nodes": [["a", "", [1.5]]]}, "no 64-bit integer"),
    ({"nodes": 3}, "lacks or garbles"),
    ({"entries": []}, "no entries"),
    ({"entries": [[100, 0, []]]}, "no streams"),
    ({"entries": [[100, 64, [STREAM]]]}, "ignore_msb 64"),
    ({"entries": [[100, 0, ["0" * 32]]]}, "version 0"),
    ({"entries": [[100, 0, ["0"]]]}, "32 hexadecimal digits"),
    ({"entries": [[100, 0, [1]]]}, "lacks or garbles"),
    ({"entries": [[2, 0, [STREAM]], [1, 0, [STREAM]]]}, "not sorted"),
    ({"entries": [[2**63, 0, [STREAM]]]}, "no 64-bit integer"),
]


@pytest.mark.parametrize(("change", "reason"), DESCRIPTIONS)
def test_descriptions_that_cannot_be(topic: Topic, change: dict[str, Any], reason: str) -> None:
    topic.refuse(_with_description(zlib.compress(json.dumps({**GOOD, **change}).encode())), reason)
    topic.append(_with_description(zlib.compress(json.dumps(GOOD).encode())))
    assert topic.log.latest is not None


PACKED = zlib.compress(json.dumps(GOOD).encode())


@pytest.mark.parametrize(
    ("packed", "reason"),
    [
        (PACKED[:-1], "cut"),
        (PACKED + b"x", "followed by other bytes"),
        (b"", "cut"),
        (b"plain", "no zlib stream"),
        (zlib.compress(b"[]"), "not a JSON object"),
        (zlib.compress(b"{}"), "lacks or garbles"),
    ],
)
def test_bytes_that_are_no_description(topic: Topic, packed: bytes, reason: str) -> None:
    topic.refuse(_with_description(packed), reason)


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
