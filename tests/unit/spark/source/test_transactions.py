"""Changes marked with the mutation that they are of, against what the log itself tells."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import UPDATE_BEGINS, UPDATE_ENDS, Change, Deletion, Op, Origin
from tailrace_schemas.digest import mutation_digest
from tailrace_spark.batch.delivery import Delivered, Piece, Transaction
from tailrace_spark.source.transactions import with_transactions
from tests.unit.spark.cassandra import with_source
from tests.unit.spark.sinks.transactions_contract import (
    ROWS,
    Mark,
    batch,
    marks_of,
    mutation,
    records_of,
    topics,
)


def marked(changes: list[Change]) -> list[Transaction | None]:
    [piece] = with_transactions([Piece(tuple(records_of(changes)))])
    return [delivered.transaction for delivered in piece.changes]


@pytest.mark.promise("transactions.together")
@given(topics(), st.lists(st.integers(1, 60), max_size=6), st.integers(1, 4))
def test_each_change_is_marked_wherever_batches_end(log: list[Delivered], cuts: list[int], step: int) -> None:
    marks = marks_of(log)
    ends = [0, *sorted({min(cut, len(log)) for cut in cuts} - {0, len(log)}), len(log)]
    seen: list[int] = []
    for begin, end in pairwise(ends):
        for piece in batch(log, begin, end, step):
            together = list(piece.changes)
            while together:
                transaction = together[0].transaction
                assert transaction is not None
                assert transaction.count is not None
                run, together = together[: transaction.count], together[transaction.count :]
                for delivered in run:
                    own, offset = delivered.transaction, delivered.record_id.offset
                    assert own is not None
                    assert Mark(own.id.hex(), own.index, own.count or 0) == marks[offset]
                    assert (own.begins, own.ends) == (run[0].record_id.offset, delivered is run[-1])
                    seen.append(offset)
    assert sorted(seen) == list(range(len(log)))


@given(st.integers(1, 4), st.integers(1, 4))
def test_copies_of_replicas_have_one_id(one_size: int, other_size: int) -> None:
    one, other = mutation("a", 1, one_size), mutation("a", 2, other_size)
    copy = [with_source(change, host="b", position=change.source.position) for change in one if change.source]
    ids = [transaction.id for transaction in marked([*one, *copy, *other]) if transaction is not None]
    assert ids[:one_size] == ids[one_size : 2 * one_size]
    assert ids[0] != ids[-1]


def test_a_table_of_several_counts_its_own() -> None:
    """A topic has one table's part of the mutation: the second of three."""
    changes = [
        with_source(change, index=2 + index, count=7, flags=flags)
        for index, (change, flags) in enumerate(zip(mutation("a", 1, 3), (UPDATE_BEGINS, 0, UPDATE_ENDS), strict=True))
    ]
    digest = mutation_digest(change.digest for change in changes)
    assert marked(changes) == [Transaction(digest, index, 3, 0, index == 2) for index in range(3)]


def test_where_changes_are_missing_nobody_knows_the_count() -> None:
    first, second, third = mutation("a", 1, 3)
    for changes, indexes in (([first, third], [0, 2]), ([second, third], [0, 1]), ([first, second], [0, 1])):
        transactions = marked(changes)
        assert [(one.index, one.count) for one in transactions if one is not None] == [(at, None) for at in indexes]


def test_what_was_published_twice_is_two_transactions() -> None:
    changes = mutation("a", 1, 2)
    assert [one and (one.index, one.count, one.begins) for one in marked([*changes, *changes])] == [
        (0, 2, 0),
        (1, 2, 0),
        (0, 2, 2),
        (1, 2, 2),
    ]


def test_truncations_and_rows_of_snapshots_have_none() -> None:
    [row] = mutation("a", 1, 1)
    truncation = Change(op=Op.TRUNCATE, table=ROWS, token=1, key=None, deletion=Deletion(5, 1), source=row.source)
    read = with_source(replace(row, op=Op.READ), origin=Origin.SNAPSHOT)
    assert marked([truncation, read, replace(row, source=None)]) == [None, None, None]
