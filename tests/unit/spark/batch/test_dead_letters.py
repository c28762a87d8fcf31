"""Dead letters: their JSON form, what of a replay was accepted, and pages of keys."""

from __future__ import annotations

import json

import pytest

from tailrace_spark.batch.dead_letters import accepted, page
from tailrace_spark.batch.delivery import DeadLetter, RecordId

LETTERS = tuple(DeadLetter(RecordId("t", offset % 2, offset, b"\x01\xff"), "why", b"\x00a") for offset in range(4))


def test_a_dead_letter_is_read_back_from_its_json() -> None:
    """docs/contracts.md has the form: files, topics and the console show it."""
    text = json.dumps(LETTERS[1].to_json())
    record_id = '"topic": "t", "partition": 1, "offset": 1'
    assert text == f'{{{record_id}, "schema": "01ff", "reason": "why", "message": "0061", "format": 1}}'
    assert DeadLetter.from_json(json.loads(text)) == LETTERS[1]
    bare = DeadLetter(RecordId("t", 0, 7), "no frame")
    assert bare.to_json()["schema"] is bare.to_json()["message"] is None
    assert DeadLetter.from_json(bare.to_json()) == bare


@pytest.mark.parametrize(
    "more", [{"schema": ""}, {"message": ""}, {"sink": "copy"}, {"change": {"op": "insert"}}, {"schema": None}]
)
def test_what_earlier_versions_and_other_stores_wrote_is_read_too(more: dict[str, object]) -> None:
    value = {"topic": "t", "partition": 0, "offset": 7, "reason": "no frame", **more}
    assert DeadLetter.from_json(value) == DeadLetter(RecordId("t", 0, 7), "no frame")


def test_the_change_is_for_people() -> None:
    letter = DeadLetter(RecordId("t", 0, 7), "too large", b"", {"op": "insert"})
    assert letter.to_json()["change"] == {"op": "insert"}
    assert DeadLetter.from_json(letter.to_json()).change is None


def test_what_was_not_set_aside_again_is_accepted() -> None:
    again = DeadLetter(LETTERS[2].record_id, "another reason")
    assert accepted(LETTERS, [again]) == [LETTERS[0], LETTERS[1], LETTERS[3]]


def test_pages_follow_each_other() -> None:
    keys = [letter.record_id.key for letter in LETTERS]
    assert page(keys, None, 3) == [("t", 0, 0), ("t", 0, 2), ("t", 1, 1)]
    assert page(keys, RecordId("t", 1, 1), 3) == [("t", 1, 3)]
    assert page(keys, None, 0) == []
