"""Whole updates, wherever batches end, whoever else writes, whatever is missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace_schemas.change import UPDATE_BEGINS, UPDATE_ENDS, Change, Deletion, Op, Origin
from tailrace_schemas.digest import mutation_digest
from tailrace_schemas.errors import ServiceError
from tailrace_schemas.ring import Node, Ring
from tailrace_schemas.streams import Assignment, build_generation, operating, stream_for
from tailrace_schemas.topics import KafkaPartition
from tailrace_spark.batch.delivery import DeadLetter, Delivered, Piece, RecordId, Transaction
from tailrace_spark.sinks.cassandra.log.rows import write_times
from tailrace_spark.source.table_updates import WAIT_SECONDS, Updates, WholeUpdates, with_streams, with_transactions
from tailrace_spark.streams.lookup import StreamTable
from tests.unit.spark.cassandra import Log, with_source
from tests.unit.spark.sinks.transactions_contract import ROWS, Mark, batch, marks_of, mutation, records_of, topics
from tests.unit.spark.source.updates import BARE, TABLE, change, told, whole

TOPIC = "t.ks.t"


def delivered(changes: Iterable[Change], start: int = 0) -> list[Delivered]:
    return [Delivered(RecordId(TOPIC, 0, offset), one) for offset, one in enumerate(changes, start)]


def fed(changes: Iterable[Change]) -> list[tuple[str, int, tuple[int, ...]]]:
    updates = Updates()
    return [told(update) for one in delivered(changes) for update in updates.feed(one)]


@st.composite
def partitions(draw: st.DrawFn) -> list[Change]:
    """What a partition of Kafka may hold: the mutations of three hosts, each in order, mixed with one another's."""
    waiting = {
        host: [
            one
            for number, count in enumerate(draw(st.lists(st.integers(1, 5), max_size=5)))
            for one in whole(host, number, count)
        ]
        for host in "abc"
    }
    mixed: list[Change] = []
    while any(waiting.values()):
        host = draw(st.sampled_from([host for host, some in waiting.items() if some]))
        mixed.append(waiting[host].pop(0))
    return mixed


@pytest.mark.promise("log-tables.same-rows")
@given(partitions(), st.lists(st.integers(0, 45), max_size=6), st.integers(1, 4))
def test_each_update_comes_once_and_whole_wherever_batches_end(
    changes: list[Change], ends: list[int], step: int
) -> None:
    log = delivered(changes)

    def read_on(partition: KafkaPartition, place: int) -> tuple[Iterable[Piece], int | None]:
        assert partition == (TOPIC, 0)
        rest = log[place : place + step]
        return [Piece(tuple(rest))], place + step if len(rest) == step else None

    found: list[tuple[str, int, tuple[int, ...]]] = []
    for start, end in pairwise(sorted({0, *(end for end in ends if end < len(log)), len(log)})):
        some = log[start:end]
        pieces = [Piece(tuple(some[: len(some) // 2])), Piece(tuple(some[len(some) // 2 :]))]
        given_pieces = WholeUpdates(lambda pieces=pieces: pieces, {(TOPIC, 0): end}, read_on)  # type: ignore[misc]  # the default binds the loop's own
        assert list(given_pieces) == list(given_pieces), "as often as asked for"
        for piece in given_pieces:
            together = list(piece.changes)
            while together:
                source = together[0].change.source
                assert source is not None
                found.append(told(together[: source.count]))
                del together[: source.count]
    expected = {
        (one.source.host, one.source.position.offset, tuple(range(one.source.count))) for one in changes if one.source
    }
    assert len(found) == len(expected)
    assert set(found) == expected


def test_updates_of_several_tables_end_where_their_flags_say() -> None:
    """A topic has one table's part of the mutation: the second of three."""
    middle = [change("a", 1, 2, 7, UPDATE_BEGINS), change("a", 1, 3, 7), change("a", 1, 4, 7, UPDATE_ENDS)]
    assert fed(middle) == [("a", 1, (2, 3, 4))]
    assert fed([change("a", 1, 2, 7, UPDATE_BEGINS | UPDATE_ENDS)]) == [("a", 1, (2,))]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([*whole("a", 1, 3)[1:], *whole("a", 2, 2)], [("a", 2, (0, 1))]),
        ([whole("a", 1, 3)[0], *whole("a", 2, 1)], [("a", 1, (0,)), ("a", 2, (0,))]),
        ([*whole("a", 1, 1), whole("a", 2, 2)[1], *whole("a", 3, 1)], [("a", 1, (0,)), ("a", 2, (1,)), ("a", 3, (0,))]),
        ([*whole("a", 1, 3)[:2], *whole("a", 1, 3)], [("a", 1, (0, 1, 2))]),
        ([*whole("a", 1, 2), *whole("a", 1, 2)], [("a", 1, (0, 1)), ("a", 1, (0, 1))]),
    ],
    ids=[
        "the end of an update that the batch before began",
        "a change that cannot be decoded at an update's end",
        "one at its beginning",
        "an agent without transactions that died in between",
        "published twice",
    ],
)
def test_what_is_not_there(changes: list[Change], expected: list[tuple[str, int, tuple[int, ...]]]) -> None:
    assert fed(changes) == expected


def test_a_replay_is_another_writer() -> None:
    again = [replace(one, source=replace(one.source, origin=Origin.REPLAY)) for one in whole("a", 1, 2) if one.source]
    first = whole("a", 1, 2)
    assert fed([first[0], again[0], first[1], again[1]]) == [("a", 1, (0, 1)), ("a", 1, (0, 1))]


def test_truncations_and_dead_letters_pass_through() -> None:
    truncation = Change(op=Op.TRUNCATE, table=TABLE, token=1, key=None, deletion=Deletion(5, 1), source=BARE.source)
    letter = DeadLetter(RecordId(TOPIC, 0, 9), "why")
    pieces = WholeUpdates(lambda: [Piece(tuple(delivered([truncation])), (letter,))], {}, _nothing)
    [piece] = pieces
    assert ([one.change for one in piece.changes], piece.dead_letters) == ([truncation], (letter,))


def _nothing(partition: KafkaPartition, place: int) -> tuple[Iterable[Piece], int | None]:
    del partition, place
    return [], None


def test_the_rest_is_waited_for_and_in_the_end_done_without(caplog: pytest.LogCaptureFixture) -> None:
    clock = [100.0]
    begun = delivered(whole("a", 1, 3)[:2])
    pieces = WholeUpdates(lambda: [Piece(tuple(begun))], {(TOPIC, 0): 2}, _nothing, clock=lambda: clock[0])
    for clock[0] in (100.0, 100.0 + WAIT_SECONDS - 1):
        with pytest.raises(ServiceError, match=r"not in Kafka yet: t\.ks\.t/0"):
            list(pieces)
    assert "lacks some of them" not in caplog.text
    clock[0] = 100.0 + WAIT_SECONDS
    assert [told(piece.changes) for piece in pieces if piece.changes] == [("a", 1, (0, 1))]
    assert "offset 0: an update of 3 changes lacks some of them" in caplog.text


def test_every_write_time_is_looked_up() -> None:
    ring = Ring((Node("h", "dc", (-(2**62), 0, 2**62)),))
    generations = [build_generation(ring, timestamp=at, seed=at) for at in (1_000, 2_000)]
    both = Log(TABLE).update((1,), (), 2_500_000, v=1, m={"=": None, 1: 1})
    cells = tuple(replace(cell, written=1_500_000) if cell.path is None else cell for cell in both.cells)
    one = replace(both, cells=cells)
    own = Assignment(2_000, stream_for(generations[1], one.token).value)
    given_piece = Piece(tuple(Delivered(RecordId(TOPIC, 0, 0), one, own) for _ in range(2)))
    piece = with_streams(given_piece, StreamTable.of(generations), write_times)
    for found in piece.changes:
        assert found.assignment == own
        assert found.others == ((1_500_000, Assignment(1_000, stream_for(generations[0], one.token).value)),)
        for written, assignment in found.others:
            place = operating([1_000, 2_000], written).generation
            assert assignment.generation == generations[place].timestamp
    plain = Piece((Delivered(RecordId(TOPIC, 0, 0), Log(TABLE).update((1,), (), 2_500_000, v=1), own),))
    assert with_streams(plain, StreamTable.of(generations), write_times) is plain


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
