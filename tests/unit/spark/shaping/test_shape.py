"""Pieces of masked changes: nothing in them says what was masked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from tailrace_schemas.change import Op
from tailrace_schemas.masks import Masks, Rule
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId
from tailrace_spark.shaping import Filters, split_conditions
from tailrace_spark.shaping.shape import Shape, masked
from tests.unit.spark.cassandra import Log
from tests.unit.tables import table

PEOPLE = table({"id": "int"}, {}, {}, {"email": "text", "age": "int"}, keyspace="shop", name="people")
LOG = Log(PEOPLE)
MASKS = Masks([Rule.parse("shop.people.email", "drop")])


def test_neither_changes_nor_dead_letters_have_their_records_bytes() -> None:
    change = LOG.insert((1,), (), 10, email="ann@shop", age=5)
    piece = Piece(
        (Delivered(RecordId("t", 0, 0), change, message=b"ann@shop"),),
        (DeadLetter(RecordId("t", 0, 1), "why", b"ann@shop"),),
    )
    [found] = masked([piece], MASKS)
    assert "ann@shop" not in repr(found)
    assert [one.message for one in found.changes] == [one.message for one in found.dead_letters] == [b""]
    assert [cell.column.name for cell in found.changes[0].change.cells] == ["age"]


def test_what_nothing_is_left_of_is_in_no_piece() -> None:
    places = [RecordId("t", 0, offset) for offset in range(2)]
    changes = [LOG.update((1,), (), 10, email="ann@shop"), LOG.update((1,), (), 11, age=6)]
    piece = Piece(tuple(Delivered(place, change) for place, change in zip(places, changes, strict=True)))
    [found] = masked([piece], MASKS)
    assert [one.record_id.offset for one in found.changes] == [1]


def test_what_is_read_back_of_a_row_passes_with_its_change() -> None:
    """As in tasks: nothing is read for changes that a filter leaves out, and the answers are not asked again."""
    _, conditions = split_conditions({"shop.*": "change.op = 'update' AND id = 1"}, "stream.where")
    log, asked_for = Log(PEOPLE), list[int]()

    def read_back(pieces: Iterable[Piece]) -> Iterator[Piece]:
        for piece in pieces:
            yield piece
            asked_for.extend(one.record_id.offset for one in piece.changes)
            yield Piece(tuple(replace(one, change=replace(one.change, op=Op.READ)) for one in piece.changes))

    changes = [log.update((key,), (), 10, age=None, email=None) for key in (1, 2)]
    piece = Piece(tuple(Delivered(RecordId("t", 0, at), one) for at, one in enumerate(changes)))
    found = Shape(Filters(conditions, written=False), MASKS).shaped([piece], read_back)
    seen = [(one.change.op, [cell.column.name for cell in one.change.cells]) for of in found for one in of.changes]
    assert seen == [(Op.UPDATE, ["age"]), (Op.READ, ["age"])]
    assert asked_for == [0]


def test_a_rule_that_matches_nothing_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """Such as a misspelt one: the column that is meant goes out as it is."""
    dropped = table({"id": "int"}, dropped={"phone": ("text", 5)}, keyspace="shop", name="people")
    names = ("shop.people.email", "shop.people.emial", "shop.*.i?", "shop.people.phone", "shop.poeple.age")
    rules = [Rule.parse(name, "rename other" if name.endswith("?") else "drop") for name in names]
    Shape(None, Masks(rules)).begin([(1, PEOPLE), (2, dropped)])
    words = 'stream.columns "{}" matches no column yet. Check the spelling: what no rule matches is not masked'
    Shape(None, Masks(rules)).check([(1, PEOPLE)])
    assert caplog.messages == [words.format("shop.people.emial"), words.format("shop.poeple.age")]


def test_changes_that_the_masks_do_not_fit_are_dead_letters_and_the_others_go_on() -> None:
    other = Log(table({"email": "text"}, regular={"v": "int"}, keyspace="shop", name="people"))
    changes = [LOG.insert((1,), (), 10, age=5), other.insert(("ann@shop",), (), 10, v=1)]
    delivered = [Delivered(RecordId("t", 0, at), one, message=b"ann@shop") for at, one in enumerate(changes)]
    [found] = masked([Piece(tuple(delivered))], MASKS)
    assert [one.record_id.offset for one in found.changes] == [0]
    [letter] = found.dead_letters
    assert letter == DeadLetter(RecordId("t", 0, 1), letter.reason)
    assert "drop of shop.people.email" in letter.reason
