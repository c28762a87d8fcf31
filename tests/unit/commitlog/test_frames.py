"""Frames of a section: checksums, borders, resuming."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.commitlog.frames import Entry, Frame, Stretch, frames, frames_of
from tailrace.commitlog.sections import Cursor, Section
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position
from tests.unit.commitlog.segments import be32, frame

# INSERT INTO ks.simple (pk, ck, v, w) VALUES (1, 'a', 'hello', 42) USING TIMESTAMP 1700000000000001, by 4.0-beta4.
PAYLOAD = bytes.fromhex(
    "012be43760e57f11f1859973518cff440e040000000110fce9d96a43c001000002017601770124000161000805"
    "68656c6c6f08000000000000002a01"
)
RECORDED = bytes.fromhex("0000003c0e2ba39b") + PAYLOAD + bytes.fromhex("290c3c52")
SECOND = b"ten bytes."
PAYLOADS = st.lists(st.binary(min_size=10, max_size=40), max_size=12)


def section(data: bytes, logical: int = 1000) -> Section:
    end = logical + len(data)
    return Section(data, logical, Cursor(logical - 8, logical - 8), Cursor(end, end))


def test_a_frame_that_cassandra_wrote() -> None:
    assert list(frames(section(RECORDED))) == [Frame(1072, PAYLOAD)]
    assert len(PAYLOAD) == 60


def test_frames_follow_without_padding() -> None:
    data = RECORDED + frame(SECOND) + RECORDED
    assert list(frames(section(data, 28))) == [Frame(100, PAYLOAD), Frame(122, SECOND), Frame(194, PAYLOAD)]
    assert list(frames(section(b""))) == []


@pytest.mark.parametrize("tail", [b"\x00", b"\x01\x02", b"\x00\x00\x00"])
def test_up_to_three_bytes_behind_the_last_frame_are_none(tail: bytes) -> None:
    assert list(frames(section(RECORDED + tail))) == [Frame(1072, PAYLOAD)]


def test_a_frame_cut_anywhere_is_corrupt_and_earlier_ones_are_given() -> None:
    # From four bytes on; fewer cannot be told from none.
    for size in range(4, len(RECORDED)):
        reading = frames(section(frame(SECOND) + RECORDED[:size]))
        assert next(reading) == Frame(1022, SECOND)
        with pytest.raises(CorruptError) as caught:
            next(reading)
        assert caught.value.offset == 1022


def test_no_flipped_bit_goes_unnoticed() -> None:
    for bit in range(len(RECORDED) * 8):
        damaged = bytearray(RECORDED)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError):
            list(frames(section(bytes(damaged) + frame(SECOND))))


def test_the_payloads_checksum_continues_that_of_the_length() -> None:
    fresh = RECORDED[:-4] + be32(zlib.crc32(PAYLOAD))
    with pytest.raises(CorruptError, match="60 bytes of payload"):
        list(frames(section(fresh)))


def sized(length: int, payload: bytes = bytes(100)) -> bytes:
    """A frame whose length is right by its own checksum only."""
    return be32(length) + be32(zlib.crc32(be32(length))) + payload


IMPOSSIBLE = [
    (bytes(100), "a length of 0 bytes"),
    (sized(9), "a length of 9 bytes"),
    (sized(-1), "a length of -1 bytes"),
    (sized(-(2**31)), "a length of -2147483648 bytes"),
    (sized(97), "97 bytes of payload, but the section ends after 108"),
    (sized(2**31 - 1), "2147483647 bytes of payload"),
    (be32(60) + bytes(96), "wrong checksum of its length"),
]


@pytest.mark.parametrize(("data", "reason"), IMPOSSIBLE)
def test_impossible_lengths(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason):
        list(frames(section(data)))


def test_the_longest_frame_fills_its_section() -> None:
    assert list(frames(section(frame(bytes(96))))) == [Frame(1108, bytes(96))]


@pytest.mark.parametrize(
    ("after", "ends"),
    [
        (0, [1072, 1094, 1166]),
        (1000, [1072, 1094, 1166]),
        (1072, [1094, 1166]),
        (1094, [1166]),
        (1166, []),
        (5000, []),
    ],
)
def test_resuming_behind_a_position(after: int, ends: list[int]) -> None:
    data = RECORDED + frame(SECOND) + RECORDED
    assert [found.end for found in frames(section(data), after)] == ends


def test_resuming_looks_at_nothing_before() -> None:
    damaged = b"\xff" * len(RECORDED) + frame(SECOND)
    assert list(frames(section(damaged), 1072)) == [Frame(1094, SECOND)]


def test_resuming_inside_of_a_frame_is_an_error() -> None:
    with pytest.raises(CorruptError):
        list(frames(section(RECORDED + RECORDED), 1003))


ID = PAYLOAD[1:17]
OTHER_ID = bytes(16)


def of_table(id: bytes) -> bytes:
    """A payload with a table id at its second byte."""
    return b"\x01" + id + b"more"


@pytest.mark.parametrize("after", [0, 1000, 1072, 1105, 9999])
def test_those_of_a_table_are_what_all_frames_have_of_it(after: int) -> None:
    """Picked by the id, wherever reading starts; too short a payload has none."""
    data = b"".join(
        [RECORDED, frame(of_table(OTHER_ID)), frame(SECOND), frame(of_table(ID)), frame(of_table(OTHER_ID))]
    )
    for tables in (frozenset({ID}), frozenset({OTHER_ID}), frozenset({ID, OTHER_ID}), frozenset[bytes]()):
        expected = [one for one in frames(section(data), after) if one.payload[1:17] in tables]
        assert list(frames_of(section(data), tables, 1, after)) == expected
    assert list(frames_of(section(frame(b"\x00" + of_table(ID))), frozenset({ID}), 2)) == [
        Frame(1034, b"\x00" + of_table(ID))
    ]


def test_no_flipped_bit_of_one_that_is_picked_goes_unnoticed() -> None:
    """But one that makes another table's of it; lengths are checked of all."""
    for bit in range(len(RECORDED) * 8):
        if 9 <= bit // 8 < 25:
            continue
        damaged = bytearray(RECORDED)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptError):
            list(frames_of(section(bytes(damaged) + frame(SECOND)), frozenset({ID}), 1))
    for size in range(4, len(RECORDED)):
        with pytest.raises(CorruptError):
            list(frames_of(section(RECORDED[:size]), frozenset({OTHER_ID}), 1))
    for data, reason in IMPOSSIBLE:
        with pytest.raises(CorruptError, match=reason):
            list(frames_of(section(data), frozenset({ID}), 1))


def stretch(whole: Section, after: int) -> Stretch:
    return Stretch(2, 77, 7, "CommitLog-7-77.log", whole, after)


def test_an_entry_says_where_it_ends() -> None:
    entry = Entry(2, 77, 1022, b"payload", 7, "CommitLog-7-77.log")
    assert entry.position == Position(2, 77, 1022)
    assert entry == Entry(2, 77, 1022, b"payload", 7, "CommitLog-7-77.log")
    assert entry not in (Entry(2, 77, 1023, b"payload", 7, "CommitLog-7-77.log"), entry.position)
    assert hash(entry) == hash(Entry(2, 77, 1022, b"payload", 7, "CommitLog-7-77.log"))
    assert "2/77:1022" in repr(entry)


@pytest.mark.slow
@given(PAYLOADS, st.integers(1, 5), st.integers(1, 100), st.integers(0, 12))
def test_the_entries_are_the_frames_however_they_are_taken(
    payloads: list[bytes], limit: int, most_bytes: int, skipped: int
) -> None:
    whole = section(b"".join(frame(payload) for payload in payloads))
    ends = [whole.logical, *(found.end for found in frames(whole))]
    after = ends[min(skipped, len(payloads))]
    rest = stretch(whole, after)
    found: list[Entry] = []
    while not rest.ended:
        piece: list[Entry] = []
        taken = rest.take(piece, limit, most_bytes)
        assert taken == sum(len(entry.payload) for entry in piece)
        assert 1 <= len(piece) <= limit
        assert taken - len(piece[-1].payload) < most_bytes
        assert rest.after == piece[-1].offset
        found += piece
    assert [(entry.offset, entry.payload) for entry in found] == [
        (one.end, one.payload) for one in frames(whole, after)
    ]
    assert all((e.epoch, e.segment, e.version, e.file) == (2, 77, 7, "CommitLog-7-77.log") for e in found)


def test_what_stands_before_damage_is_given_and_nothing_behind_it() -> None:
    damaged = bytearray(frame(b"the first one") + frame(b"the second") + frame(b"the third"))
    damaged[len(frame(b"the first one")) + 9] ^= 1
    rest, found = stretch(section(bytes(damaged)), 0), list[Entry]()
    with pytest.raises(CorruptError) as caught:
        rest.take(found, 10, 1000)
    assert [entry.payload for entry in found] == [b"the first one"]
    assert (caught.value.offset, rest.after) == (1025, 1025)
