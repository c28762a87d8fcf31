"""Stretches of entries: what `frames` says of a section, in as many pieces as one likes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.commitlog.entry import Entry, Stretch
from tailrace.commitlog.frames import frames
from tailrace.commitlog.sections import Cursor, Section
from tailrace_schemas.errors import CorruptError
from tailrace_schemas.position import Position
from tests.unit.commitlog.segments import frame

PAYLOADS = st.lists(st.binary(min_size=10, max_size=40), max_size=12)


def section(data: bytes, logical: int = 1000) -> Section:
    end = logical + len(data)
    return Section(data, logical, Cursor(logical - 8, logical - 8), Cursor(end, end))


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
