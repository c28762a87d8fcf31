"""Moves of a position by hand."""

from __future__ import annotations

import pytest

from tailrace.publish.hosts import Between, adopted, move_words, moved, position_words, restored, target_of
from tailrace.publish.offsets import decode_offsets, encode_offsets
from tailrace.state import Quarantined, Resume
from tailrace_schemas.errors import SettingsError
from tailrace_schemas.position import Position

AT = Position(2, 70, 400)
BAD = [Quarantined(50, 5, 10, "x"), Quarantined(60, 6, 20, "y"), Quarantined(65, 7, 0, "z")]
RESUME = Resume(AT, ((60, 6), (70, 9)), tuple(BAD), Position(AT.epoch, 70, 900))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("70:300", Position(2, 70, 300)),
        ("2/70:300", Position(2, 70, 300)),
        ("60", Position(2, 60, 0)),
        ("2/80", Position(2, 80, 0)),
    ],
)
def test_a_position_is_read_as_it_is_shown(text: str, target: Position) -> None:
    assert target_of(text, AT) == target
    assert target_of(str(target), AT) == target


@pytest.mark.parametrize("text", ["", "x", "70:", ":300", "2/", "-1:0", "70:-1", "70:300 ", "\u0663", "1/2/3"])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="a position is"):
        target_of(text, AT)


@pytest.mark.parametrize("text", ["1/70:300", "3/70"])
def test_another_log_s_position_is_refused(text: str) -> None:
    """Its files are not there."""
    with pytest.raises(SettingsError, match=r"in log epoch 2.*adopt --new-log"):
        target_of(text, AT)


@pytest.mark.parametrize(
    ("target", "opened", "kept"),
    [
        # Back: known segments stay known, and damage from there on is tried again.
        (Position(2, 60, 20), ((55, 1), (60, 6), (70, 9)), BAD[:1]),
        (Position(2, 55, 0), ((55, 1), (60, 6), (70, 9)), BAD[:1]),
        # Forward: what is passed over counts as read, up to the target's own segment.
        (Position(2, 75, 0), ((55, 1), (60, 6), (70, 9), (75, 3)), BAD),
        (Position(2, 74, 0), ((55, 1), (60, 6), (70, 9)), BAD),
    ],
)
def test_a_move_notes_what_is_passed_over(target: Position, opened: object, kept: list[Quarantined]) -> None:
    """An agent that starts there takes no segment for another log's."""
    after = moved(RESUME, target, [(55, 1), (60, 6), (70, 9), (75, 3), (80, 4)])
    back = ((target.segment + 1, 70),) if target.segment < 70 else ()
    # What was read of DDL stays read, and what is gone meanwhile is no loss.
    assert after == Resume(target, after.open, tuple(kept), RESUME.schema, reported=back)
    assert after.open == opened


def test_a_new_log_is_read_from_its_beginning() -> None:
    """In the next epoch, nothing known; the record can be read again."""
    after = adopted(RESUME)
    assert after == Resume(Position(3, -1, 0))
    assert decode_offsets(encode_offsets(after)) == after
    assert after.position is not None
    assert after.position > AT
    assert position_words(after.position) == "3/start"


def test_a_deleted_record_is_restored_from_what_the_node_has() -> None:
    """What stands at or below the position counts as read; what may have parked mutations is kept."""
    after = restored(AT, [(60, 6), (70, 9), (80, 4), (50, 5)], [(60, 6), (70, 9), (80, 4)])
    assert after.position == after.schema == AT
    assert after.open == ((50, 5), (60, 6), (70, 9))
    assert [(one.segment, one.checksum, one.offset) for one in after.quarantined] == [(60, 6, 0)]
    assert decode_offsets(encode_offsets(after)) == after
    assert restored(AT, [], []) == Resume(AT, schema=AT)


def test_without_a_position_there_is_no_other_log() -> None:
    with pytest.raises(SettingsError, match="no position yet"):
        adopted(Resume())


@pytest.mark.parametrize(
    ("after", "between", "words"),
    [
        (AT, None, "is at 2/70:400 already"),
        (
            Position(2, 60, 0),
            Between(1, (60,), True),
            "back from 2/70:400 to 2/60:0: 1 mutation in 1 segment, of all tables, are read again: their changes are "
            "published a second time (duplicates)",
        ),
        (Position(2, 60, 0), Between(7, (61, 62), False), "at least 7 mutations in 2 segments"),
        (Position(2, 60, 0), Between(7, (61, 62), False), "(duplicates); what is gone from cdc_raw is not"),
        (Position(2, 60, 0), None, "(not counted: cdc_raw is not at hand)"),
        (
            Position(2, 80, 9),
            Between(12, (70, 80), True),
            "forward from 2/70:400 to 2/80:9: 12 mutations in 2 segments, of all tables, are never published (a gap)",
        ),
    ],
)
def test_what_a_move_means_is_said(after: Position, between: Between | None, words: str) -> None:
    assert words in move_words("h", AT, after, between)
