"""The contract of where dead letters are: of the topic, and of its double in memory."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import pytest

from tailrace_spark.batch.delivery import DeadLetter, RecordId
from tailrace_spark.sinks.letters import LetterBox, Letters

LETTERS = tuple(
    DeadLetter(RecordId("t.shop.plain", number % 3, number, b"\x01\xff"), f"why {number}", b"\0%d" % number)
    for number in range(7)
)
IN_ORDER = sorted(LETTERS, key=lambda letter: letter.record_id.key)


class Room(NamedTuple):
    """Where a sink of a name puts its letters, and new commands that look there."""

    letters: Letters
    box: Callable[[], LetterBox]


class LettersContract:
    """Give `room` as a fixture: it makes an empty one for each name of a sink."""

    @pytest.mark.promise("sinks.dead-letters")
    def test_they_are_listed_in_order_and_by_pages(self, room: Callable[[str], Room]) -> None:
        """With their bytes and their schemas, by whoever asks."""
        letters, box = room("copy")
        assert box().list(None, 9) == []
        letters.put([])
        letters.put(LETTERS)
        listed = box().list(None, 9)
        assert listed == IN_ORDER
        assert [letter.message for letter in listed] == [letter.message for letter in IN_ORDER]
        reader = box()
        assert [*reader.list(None, 2), *reader.list(IN_ORDER[1].record_id, 9)] == IN_ORDER
        assert reader.list(IN_ORDER[-1].record_id, 9) == []

    @pytest.mark.promise("sinks.dead-letters")
    def test_what_is_put_is_there_at_once_and_what_is_removed_is_not(self, room: Callable[[str], Room]) -> None:
        letters, box = room("copy")
        reader = box()
        for letter in LETTERS[:3]:
            letters.put([letter])
            assert letter in reader.list(None, 9)
        assert reader.remove(reader.list(None, 2)) == 2
        assert len(reader.list(None, 9)) == len(box().list(None, 9)) == 1

    @pytest.mark.promise("sinks.dead-letters")
    def test_a_record_has_one_letter_and_the_newer_one(self, room: Callable[[str], Room]) -> None:
        letters, box = room("copy")
        newer = replace(LETTERS[0], reason="another")
        letters.put([LETTERS[0], LETTERS[1]])
        letters.put([newer])
        assert box().list(None, 9) == sorted([newer, LETTERS[1]], key=lambda letter: letter.record_id.key)

    @pytest.mark.promise("sinks.dead-letters")
    def test_what_was_put_again_since_it_was_listed_stays(self, room: Callable[[str], Room]) -> None:
        """As by the sink that a replay writes into, or by a stream beside it; the same one too."""
        letters, box = room("copy")
        letters.put(LETTERS[:3])
        reader = box()
        listed = reader.list(None, 9)
        letters.put(LETTERS[1:2])
        assert reader.remove(listed) == 2
        assert box().list(None, 9) == [LETTERS[1]]
        assert reader.remove(reader.list(None, 9)) == 1
        assert box().list(None, 9) == []

    @pytest.mark.promise("sinks.dead-letters")
    def test_sinks_have_their_own(self, room: Callable[[str], Room]) -> None:
        one, other = room("one"), room("other")
        one.letters.put(LETTERS[:2])
        other.letters.put(LETTERS[1:3])
        reader = one.box()
        assert reader.remove(reader.list(None, 9)) == 2
        assert len(other.box().list(None, 9)) == 2

    @pytest.mark.promise("sinks.dead-letters")
    def test_tasks_put_into_the_same(self, room: Callable[[str], Room]) -> None:
        letters, box = room("copy")
        for letter in LETTERS:
            copied: Letters = pickle.loads(pickle.dumps(letters))  # noqa: S301 - our own
            assert copied == letters
            copied.put([letter])
        assert box().list(None, 9) == IN_ORDER
