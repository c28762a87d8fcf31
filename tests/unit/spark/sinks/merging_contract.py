"""The contract of merging sinks: a class of tests that each of them runs against what it really writes to.

The oracle is row state: what its rules make of the same changes is what must be there, whatever came in what order,
how often and in what batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from random import Random
from typing import Any, ClassVar, Protocol
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace_schemas.change import EXPIRED_TTL, Change, Marker, Op
from tailrace_schemas.cql.values import codec, split_key
from tailrace_schemas.errors import ServiceError, TailraceError
from tailrace_schemas.position import Position
from tailrace_schemas.streams import Assignment
from tailrace_schemas.table import Table
from tailrace_spark.batch.delivery import DeadLetter, Piece, RecordId, Summary
from tailrace_spark.rowstate.partition import Partition
from tailrace_spark.rowstate.visible import VisibleColumns
from tailrace_spark.sinks.protocol import SweepingSink, write_here
from tests.held import Record, hold
from tests.properties import examples
from tests.support.expiry import SECOND, Time, expiring
from tests.support.letters import MemoryLetters
from tests.support.shop import ORDERS, PLAIN, WIDER, one_change
from tests.unit.spark.cassandra import Log, truncate, with_source
from tests.unit.spark.changes import assignments
from tests.unit.spark.sinks.contract import broken, delivered, piece
from tests.unit.spark.sinks.hostile import LONG_NAMES, TYPES, WRITE_TIMES, extremes
from tests.unit.tables import table

WIDE = table(
    {"id": "int"}, {"c": "int"}, {"s": "text"}, {"v": "text"}, keyspace="shop", name="wide", table_id=UUID(int=7)
)
VIEW = replace(
    table({"owner": "text"}, {"id": "int"}, {}, {"v": "text"}, keyspace="shop", name="by_owner", table_id=UUID(int=8)),
    flags=frozenset({"compound", "view", "strict"}),
)
Row = tuple[object, ...]


class Followed(Protocol):
    """One store of the sink under test, and what its readers see."""

    def open(self, clock: Callable[[], float] | None = None, ring_delay: float = 0.0) -> SweepingSink:
        """A sink as a new process has it; without a clock nothing that expires has expired."""

    def rows(self, of: Table, *columns: str) -> list[Row]:
        """What a reader sees of a source table in these columns (ints and texts), sorted by repr."""

    def columns(self, of: Table) -> list[str]:
        """The source's columns that a reader sees, in no order."""

    def everything(self) -> object:
        """All that is there, what the sink keeps for itself too."""

    @property
    def letters(self) -> MemoryLetters:
        """Where its sinks put what they set aside."""


def write(followed: Followed, *changes: Change, time: Time | None = None) -> Summary:
    """One micro-batch through a sink of its own."""
    with closing(followed.open(time)) as sink:
        return write_here(sink, [piece(changes)])


def selected(of: Table, changes: Iterable[Change], *columns: str, now: int | None = None) -> list[Row]:
    """What SELECT returns in these columns after all of the changes, by the rules of row state; sorted by repr.

    Without a time nothing has expired.
    """
    partitions: dict[bytes, Partition] = {}
    for change in changes:
        assert change.key is not None
        partitions.setdefault(change.key, Partition()).absorb(change)
    found: list[dict[str, Any]] = []
    keys, clusterings = [c.type for c in of.partition_key], of.clustering
    for key, partition in partitions.items():
        parts = split_key(tuple(keys), key)
        named = {c.name: codec(c.type).decode(part) for c, part in zip(of.partition_key, parts, strict=True)}
        static = partition.rows.get(None)
        statics = None if static is None else VisibleColumns(of, static=True).of(static.state, None, now)
        rows: list[dict[str, Any]] = []
        for place, known in partition.rows.items():
            shown = None if place is None else VisibleColumns(of).of(known.state, None, now)
            if shown is not None:
                pairs = zip(clusterings, known.clustering, strict=True)
                at = {c.name: None if value is None else codec(c.type).decode(value) for c, value in pairs}
                rows.append({**named, **at, **(statics or {}), **shown})
        found += rows or ([] if statics is None else [{**named, **statics}])
    return sorted((tuple(row.get(column) for column in columns) for row in found), key=repr)


class MergingContract:
    """Give `another` as a fixture: each call makes a new, empty store."""

    sink: ClassVar[str]
    server_name: ClassVar[str]
    """What they are on, with the version; or else the fixture `server` says that."""

    @pytest.fixture
    def server(self) -> str:
        return self.server_name

    @pytest.fixture
    def followed(self, another: Callable[[], Followed]) -> Followed:
        return another()

    @pytest.fixture(autouse=True)
    def _held(self, server: str, record_property: Record) -> None:
        hold(record_property, self.sink, "merging", server)

    def test_an_empty_batch_is_nothing_and_it_may_be_closed_more_than_once(self, followed: Followed) -> None:
        with closing(followed.open()) as sink:
            assert write_here(sink, []) == Summary()
            sink.close()

    @pytest.mark.slow
    def test_rows_come_and_go_batch_by_batch(self, followed: Followed) -> None:
        log, seen = Log(PLAIN), []
        with closing(followed.open()) as sink:
            for batch in (
                [log.delete((1,), (), 1), log.insert((2,), (), 1, v="a", w=1), log.insert((3,), (), 1, v="a")],
                [log.update((1,), (), 2, v="there"), log.update((2,), (), 2, v="b"), log.delete((3,), (), 2)],
                [log.update((1,), (), 3, v=None), log.update((2,), (), 3, w=None), log.update((3,), (), 3, w=3)],
                [log.insert((1,), (), 4), log.insert((2,), (), 3, w=2), log.insert((3,), (), 1, v="late")],
            ):
                write_here(sink, [piece(batch)])
                seen.append(followed.rows(PLAIN, "id", "v", "w"))
        assert seen == [
            [(2, "a", 1), (3, "a", None)],
            [(1, "there", None), (2, "b", 1)],
            [(2, "b", None), (3, None, 3)],
            [(1, None, None), (2, "b", None), (3, None, 3)],
        ]

    @pytest.mark.slow
    def test_a_row_of_a_view_goes_with_its_marker(self, followed: Followed) -> None:
        """A view by another column than its base table's key: what leaves it keeps its cells, and a dead marker."""
        log, time = Log(VIEW), Time()
        with closing(followed.open(time)) as sink:
            for owner, at in (("ann", 10), ("bob", 20), ("ann", 30)):
                came = log.insert((owner,), (1,), at, v="a")
                came = replace(came, cells=tuple(replace(cell, written=5) for cell in came.cells))
                write_here(sink, [piece([came])])
                assert followed.rows(VIEW, "owner", "id", "v") == [(owner, 1, "a")]
                left = replace(log.update((owner,), (1,), at), op=Op.DELETE, marker=Marker(at, EXPIRED_TTL, 99))
                write_here(sink, [piece([left, came])])
                assert followed.rows(VIEW, "owner", "id", "v") == []
            read = replace(log.update(("cy",), (2,), 40, v="b"), op=Op.READ)
            short = replace(log.insert(("di",), (3,), 40, v="c"), marker=Marker(40, 9, 109))
            write_here(sink, [piece([read, short])])
            assert followed.rows(VIEW, "owner", "id", "v") == [("cy", 2, "b"), ("di", 3, "c")]
            time.now = 109
            sink.sweep()
            assert followed.rows(VIEW, "owner", "id", "v") == [("cy", 2, "b")]

    @pytest.mark.slow
    def test_statics_stand_in_each_row_or_alone(self, followed: Followed) -> None:
        log, columns = Log(WIDE), ("id", "c", "s", "v")
        write(followed, log.static((1,), 5, s="S"), log.static((2,), 5, s="T"), log.insert((1,), (1,), 5, v="a"))
        assert followed.rows(WIDE, *columns) == [(1, 1, "S", "a"), (2, None, "T", None)]
        write(followed, log.insert((1,), (2,), 5, v="b"), log.static((1,), 6, s="U"), log.insert((2,), (7,), 1, v="c"))
        assert followed.rows(WIDE, *columns) == [(1, 1, "U", "a"), (1, 2, "U", "b"), (2, 7, "T", "c")]
        write(followed, log.delete((2,), (7,), 2), log.static((1,), 7, s=None))
        assert followed.rows(WIDE, *columns) == [(1, 1, None, "a"), (1, 2, None, "b"), (2, None, "T", None)]
        write(followed, log.delete_partition((2,), 9))
        assert followed.rows(WIDE, *columns) == [(1, 1, None, "a"), (1, 2, None, "b")]

    @pytest.mark.slow
    def test_deletions_of_ranges_reach_rows_before_and_after_them(self, followed: Followed) -> None:
        log, key = Log(ORDERS), ("ann",)
        rows = [log.insert(key, (day, number), 10, note=f"{day}/{number}") for day in (1, 2) for number in (1, 2, 3)]
        write(followed, *rows[:4], log.static(key, 10, name="Ann"))
        # number is DESC: in storage order the range from 3 to 2 comes before 1.
        write(followed, log.delete_range(key, (1, 3), (1, 2), 20))
        write(followed, log.delete_range(key, (2,), (2, 2), 5, "[)"))
        assert followed.rows(ORDERS, "note", "name") == [("1/1", "Ann"), ("2/1", "Ann")]
        write(followed, *rows)
        assert [row[0] for row in followed.rows(ORDERS, "note")] == ["1/1", "2/1", "2/2", "2/3"]
        write(followed, log.update(key, (1, 2), 21, note="again"))
        assert ("again",) in followed.rows(ORDERS, "note")
        write(followed, log.delete_partition(key, 20))
        assert followed.rows(ORDERS, "note", "name") == [("again", None)]

    @pytest.mark.slow
    @settings(
        max_examples=examples(6), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
    )  # fmt: skip
    @given(
        st.lists(st.tuples(one_change, assignments), min_size=1, max_size=10),
        st.lists(st.integers(0, 9), max_size=4),
        st.randoms(use_true_random=False),
    )
    def test_whatever_comes_in_what_order_how_often_the_rows_are_those_of_select(
        self,
        another: Callable[[], Followed],
        changes: list[tuple[Change, Assignment | None]],
        again: list[int],
        random: Random,
    ) -> None:
        followed = another()
        arriving = [*changes, *(changes[number % len(changes)] for number in again)]
        random.shuffle(arriving)
        with closing(followed.open()) as sink:
            while arriving:
                some = random.randint(1, len(arriving))
                write_here(sink, [Piece(tuple(delivered(change, to) for change, to in arriving[:some]))])
                arriving = arriving[some:]
        columns = ("customer", "number", "name", "note")
        assert followed.rows(ORDERS, *columns) == selected(ORDERS, [change for change, _ in changes], *columns)

    def test_a_batch_delivered_again_changes_nothing(self, followed: Followed) -> None:
        log = Log(ORDERS)
        batch = [
            log.insert(("a",), (1, 1), 10, note="x", lines={"=": None, 1: "p"}),
            log.static(("a",), 10, name="A"),
            log.delete_range(("a",), (2,), (3,), 12),
            log.delete(("a",), (5, 5), 9),
            log.delete_partition(("b",), 9),
        ]
        write(followed, *batch)
        before = followed.everything()
        assert write(followed, *batch) == Summary(5, 0, 0)
        assert write(followed, *batch[:2]).rows == 0
        assert followed.everything() == before

    def test_several_tables_and_pieces_are_one_batch(self, followed: Followed) -> None:
        plain, wide = Log(PLAIN), Log(WIDE)
        with closing(followed.open()) as sink:
            summary = write_here(
                sink,
                [
                    piece([plain.insert((1,), (), 1, v="a"), wide.insert((1,), (1,), 1, v="b")]),
                    piece([plain.update((1,), (), 2, w=7), wide.delete((1,), (1,), 2)]),
                ],
            )
        assert summary.changes == 4
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, "a", 7)]
        assert followed.rows(WIDE, "id") == []

    @pytest.mark.promise("sinks.dead-letters")
    def test_letters_are_kept_before_their_batch_counts(self, followed: Followed) -> None:
        letter = DeadLetter(RecordId("t.shop.plain", 2, 7, b"\xab" * 8), "no change", b"\0bytes")
        batch = [Piece(piece([Log(PLAIN).insert((1,), (), 1, v="a")]).changes, (letter,))]
        with closing(followed.open()) as sink:
            with followed.letters.shut(), pytest.raises(ServiceError, match="Kafka does not answer"):
                write_here(sink, batch)
            assert write_here(sink, batch).dead_letters == 1
        assert followed.letters.all == [letter]
        assert followed.rows(PLAIN, "id") == [(1,)]

    @pytest.mark.promise("sinks.one-table-alone")
    def test_an_error_of_any_type_is_one_table_s(self, followed: Followed) -> None:
        """All other tables of the batch, and of those behind it, go in; the sum says which table it was and why."""
        log = Log(PLAIN)
        with closing(followed.open()) as sink:
            done = write_here(sink, [piece([broken(), log.insert((1,), (), 1, v="a"), log.insert((2,), (), 1, v="b")])])
            assert done == Summary(2, 2, 1)
            assert done.refused.keys() == {"shop.broken"}
            write_here(sink, [piece([log.insert((1,), (), 2, v="c"), broken()])])
            sink.sweep()
        write(followed, broken(), log.insert((3,), (), 2, v="d"))
        assert followed.rows(PLAIN, "id", "v") == [(1, "c"), (2, "b"), (3, "d")]
        assert len(followed.letters.all) == 3

    @pytest.mark.promise("sinks.extreme-values")
    def test_values_at_the_ends_of_all_types_stop_no_other_table(self, followed: Followed) -> None:
        """Each row is there, or is set aside by itself where the store cannot have one of its values."""
        changes = extremes()
        done = write(followed, *changes, Log(PLAIN).insert((1,), (), 1, v="a"))
        assert (done.changes + done.dead_letters, done.deferred) == (len(changes) + 1, 0)
        assert followed.rows(PLAIN, "id", "v") == [(1, "a")]
        assert len(followed.rows(TYPES, "id")) == len(changes) - len(followed.letters.all) >= 1

    @pytest.mark.promise("sinks.one-table-alone")
    def test_the_longest_names_fit_and_are_told_apart(self, followed: Followed) -> None:
        changes = [Log(of).insert((1,), (), 1, v=of.name[-1]) for of in LONG_NAMES]
        assert write(followed, *changes, Log(PLAIN).insert((1,), (), 1, v="c")) == Summary(3, 3, 0)
        assert [followed.rows(of, "id", "v") for of in (*LONG_NAMES, PLAIN)] == [[(1, letter)] for letter in "abc"]

    @pytest.mark.promise("sinks.extreme-values")
    def test_write_times_at_the_ends_merge_as_all_others(self, followed: Followed) -> None:
        log, changes = Log(WIDE), list[Change]()
        for number, at in enumerate(WRITE_TIMES):
            changes += [
                log.insert((number,), (1,), at, v="a"),
                log.static((number,), at, s="b"),
                log.delete((number,), (2,), at),
                log.delete_range((number,), (3,), (5,), at),
                log.delete_partition((-number,), at),
            ]
            changes += [log.insert((number,), (place,), other, v="c") for place, other in enumerate(WRITE_TIMES)]
        time, columns = Time(), ("id", "c", "s", "v")
        done = write(followed, *changes, Log(PLAIN).insert((1,), (), 1, v="a"), time=time)
        assert (done.changes, done.dead_letters, done.deferred) == (len(changes) + 1, 0, 0)
        with closing(followed.open(time)) as sink:
            sink.sweep()
        assert followed.rows(WIDE, *columns) == selected(WIDE, changes, *columns)
        assert followed.rows(PLAIN, "id", "v") == [(1, "a")]

    def test_a_value_that_is_none_of_its_type_is_set_aside_alone(self, followed: Followed) -> None:
        log = Log(PLAIN)
        good = [log.insert((number,), (), 1, v="a", w=number) for number in range(3)]
        bad = log.insert((9,), (), 1, v="a", w=1)
        bad = replace(bad, cells=tuple(replace(cell, value=b"\xff" * 3) for cell in bad.cells))
        assert write(followed, good[0], bad, *good[1:]) == Summary(3, 3, 1)
        assert len(followed.letters.all) == 1
        assert followed.rows(PLAIN, "id", "w") == [(number, number) for number in range(3)]

    @pytest.mark.slow
    def test_columns_come_and_go(self, followed: Followed) -> None:
        """What a dropped column had is no data, though it comes back under its name and with another type."""
        write(followed, Log(PLAIN).insert((1,), (), 10, v="a", w=1), Log(PLAIN).update((2,), (), 10, v="b"))
        wider = replace(PLAIN, regular=table({"id": "int"}, regular={"v": "text", "w": "int", "x": "text"}).regular)
        write(followed, Log(wider).update((1,), (), 11, x="new"))
        assert followed.rows(PLAIN, "id", "v", "w", "x") == [(1, "a", 1, "new"), (2, "b", None, None)]
        gone = table({"id": "int"}, regular={"w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain")
        write(followed, Log(gone).update((1,), (), 30, w=3))
        assert set(followed.columns(PLAIN)) == {"id", "w", "x"}
        assert followed.rows(PLAIN, "id", "w") == [(1, 3)]
        back = table(
            {"id": "int"}, regular={"v": "int", "w": "int"}, dropped={"v": ("text", 20)}, keyspace="shop", name="plain"
        )
        write(followed, Log(back).insert((2,), (), 40, v=5))
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, None, 3), (2, 5, None)]
        write(followed, Log(PLAIN).update((1,), (), 9, v="late", w=0))
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, None, 3), (2, 5, None)]

    def test_a_column_that_is_dropped_and_there_again_at_once_comes_back_empty(self, followed: Followed) -> None:
        write(followed, Log(PLAIN).insert((1,), (), 10, v="a", w=1), Log(PLAIN).update((2,), (), 10, v="b"))
        again = replace(PLAIN, dropped=table({"id": "int"}, dropped={"v": ("text", 20)}).dropped)
        write(followed, Log(again).update((3,), (), 30, v="new"))
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, None, 1), (3, "new", None)]

    @pytest.mark.slow
    def test_what_expires_goes_when_it_is_swept(self, followed: Followed) -> None:
        log, time = Log(PLAIN), Time()
        write(
            followed,
            log.insert((1,), (), 1, v="stays"), expiring(log.update((1,), (), 2, w=5), 110),
            expiring(log.insert((2,), (), 1, v="a"), 105), expiring(log.update((2,), (), 1, w=7), 120),
            time=time,
        )  # fmt: skip
        assert followed.rows(PLAIN, "id", "v", "w") == [(1, "stays", 5), (2, "a", 7)]
        for now, swept, rows in (
            (101, 0, [(1, "stays", 5), (2, "a", 7)]),
            (105, 1, [(1, "stays", 5), (2, None, 7)]),
            (130, 2, [(1, "stays", None)]),
            (131, 0, [(1, "stays", None)]),
        ):
            time.now = now
            with closing(followed.open(time)) as sink:
                assert sink.sweep() == swept
            assert followed.rows(PLAIN, "id", "v", "w") == rows

    @pytest.mark.slow
    def test_a_truncation_takes_what_was_written_before_it(self, followed: Followed) -> None:
        log, time, at = Log(WIDE), Time(), 50 * SECOND
        columns = ("id", "c", "s", "v")
        rows = [log.insert((1,), (n,), at + n, v=str(n)) for n in range(4)]
        old = [*rows, log.static((1,), at, s="S"), log.insert((2,), (1,), at, v="x"), log.delete_partition((3,), at)]
        write(followed, *old, time=time)
        write(followed, truncate(WIDE, "a", at + 1), time=time)
        assert followed.rows(WIDE, *columns) == [(1, 2, None, "2"), (1, 3, None, "3")]
        # Late copies and a replay of it change nothing; nor does another host that says the same.
        write(followed, *old, truncate(WIDE, "a", at + 1), truncate(WIDE, "b", at + 1), time=time)
        assert followed.rows(WIDE, *columns) == [(1, 2, None, "2"), (1, 3, None, "3")]
        write(followed, log.insert((2,), (1,), at + 5, v="new"), time=time)
        assert (2, 1, None, "new") in followed.rows(WIDE, *columns)

    @pytest.mark.slow
    @pytest.mark.promise("sinks.behind-truncation")
    def test_a_truncation_takes_what_stands_before_it_in_each_hosts_log(self, followed: Followed) -> None:
        """Whatever the write times, and whichever host tells first."""
        log, time, before = Log(PLAIN), Time(61), [(1, 50), (2, 59), (3, 10_000), (4, 57)]

        def written(host: str, offset: int, id: int, at: int, v: str) -> Change:
            place = Position(1, 5, offset)
            return with_source(log.insert((id,), (), at * SECOND, v=v), host=host, position=place, seen=61_000)

        with closing(followed.open(time, ring_delay=5)) as sink:
            write_here(sink, [piece([written("a", 1 + id, id, at, "old") for id, at in before])])
            write_here(sink, [piece([truncate(PLAIN, "a", 60 * SECOND, Position(1, 5, 20))])])
            assert followed.rows(PLAIN, "id", "v") == []
            # A host that lags behind tells of what it truncated a moment later.
            write_here(sink, [piece([written("b", 1 + id, id, at, "old") for id, at in before])])
            assert followed.rows(PLAIN, "id", "v") == []
            reloaded = [written("a", 20 + id, id, at, "new") for id, at in before if id != 2]
            write_here(sink, [piece(reloaded)])
        shown = [(1, "new"), (3, "new"), (4, "new")]
        assert followed.rows(PLAIN, "id", "v") == shown
        with closing(followed.open(time, ring_delay=5)) as sink:
            # They reached one host before its truncation and the other one behind it.
            between = [
                [
                    with_source(change, host=host, position=Position(1, 5, offset))
                    for host, offset in (("a", 19), ("b", 8))
                ]
                for change in [log.insert((id,), (), 59 * SECOND, v="between") for id in (5, 6)]
            ]
            write_here(
                sink, [piece([between[0][0], truncate(PLAIN, "b", 58 * SECOND, Position(1, 5, 7)), between[0][1]])]
            )
            shown.append((5, "between"))
            assert followed.rows(PLAIN, "id", "v") == shown
            write_here(sink, [piece(between[1])])
            shown.append((6, "between"))
            assert followed.rows(PLAIN, "id", "v") == shown
            again = [written(host, 1 + id, id, at, "old") for host in "ab" for id, at in before]
            write_here(sink, [piece([*again, truncate(PLAIN, "a", 60 * SECOND, Position(1, 5, 20))])])
            assert followed.rows(PLAIN, "id", "v") == shown
            write_here(sink, [piece([truncate(PLAIN, "b", 70 * SECOND, Position(1, 5, 30))])])
        assert followed.rows(PLAIN, "id", "v") == []

    @pytest.mark.promise("sinks.behind-truncation")
    def test_a_truncation_that_was_set_aside_takes_nothing_that_is_behind_it(self, followed: Followed) -> None:
        """Another host's record of the same statement comes when rows behind it are there."""
        log, time = Log(PLAIN), Time(61)

        def written(offset: int, id: int, at: int, v: str) -> Change:
            place = Position(1, 5, offset)
            return with_source(log.insert((id,), (), at * SECOND, v=v), host="a", position=place, seen=61_000)

        # No long can hold its write time, so the table is refused as a whole.
        unwritable = written(21, 9, 2**64, "a")
        with closing(followed.open(time, ring_delay=5)) as sink:
            write_here(sink, [piece([written(1, 1, 50, "old")])])
            write_here(sink, [piece([truncate(PLAIN, "a", 60 * SECOND, Position(1, 5, 20)), unwritable])])
            time.now += 100
            write_here(sink, [piece([written(25, 2, 61, "new"), written(2, 3, 51, "old")])])
            assert followed.rows(PLAIN, "id", "v") == [(2, "new")]
            write_here(sink, [piece([truncate(PLAIN, "b", 61 * SECOND, Position(1, 5, 7))])])
        assert followed.rows(PLAIN, "id", "v") == [(2, "new")]

    def test_a_table_made_again_is_another(self, followed: Followed) -> None:
        """Whatever becomes of the old one, no row of it is the new one's."""
        again = replace(PLAIN, id=UUID(int=PLAIN.id.int ^ 1))
        write(followed, Log(PLAIN).insert((1,), (), 99, v="old"))
        write(followed, Log(again).insert((2,), (), 1, v="new"))
        write(followed, Log(again).update((1,), (), 1, w=4))
        assert followed.rows(again, "id", "v", "w") == [(1, None, 4), (2, "new", None)]


def by_repr(rows: Iterable[Sequence[object]]) -> list[Row]:
    """Rows as `Followed.rows` gives them."""
    return sorted(map(tuple, rows), key=repr)


class StoppedWriterContract:
    """Beside MergingContract, of stores whose writers lock nothing: SQL databases have `sql/test_fencing.py`."""

    @pytest.mark.slow
    @pytest.mark.promise("sink.successor")
    @pytest.mark.parametrize("stopped_before", range(3))
    def test_a_writer_that_was_stopped_in_a_batch_leaves_what_its_heir_wrote(
        self, followed: Followed, stopped_before: int
    ) -> None:
        """Stopped before a piece, or before the commit; the heir's batch has columns, ends of rows, truncations."""
        log, other, wider = Log(PLAIN), Log(WIDE), Log(WIDER)
        first, second, third, fourth, truncated, fifth, deleted = (number * SECOND for number in range(50, 57))
        before = [log.insert((number,), (), first, v="first", w=0) for number in range(8)]
        earlier = [
            [log.update((number,), (), second, v="earlier") for number in range(4)],
            [log.update((number,), (), second, w=2) for number in range(4, 8)],
        ]
        later = [
            *(wider.update((number,), (), third, x="later") for number in (0, 4)),
            *(log.delete((number,), (), third) for number in (1, 5)),
            *(log.update((number,), (), third, v="later", w=None) for number in (2, 6)),
        ]
        truncated_rows = [other.insert((number,), (number,), third, v="taken") for number in (1, 2)]
        partition_deletion = other.delete_partition((3,), deleted)
        last_update = wider.update((7,), (), fourth, x="behind")
        later_rows = [other.insert((3,), (3,), fifth, v="deleted"), other.static((1,), fifth, s="s")]
        write(followed, *before)

        def stopped() -> Iterator[Piece]:
            pieces = [piece([*earlier[0], truncated_rows[0]]), piece(earlier[1])]
            yield from pieces[:stopped_before]
            write(followed, *earlier[0], *earlier[1], *truncated_rows, *later, partition_deletion)
            write(followed, truncate(WIDE, "h", truncated))
            yield from pieces[stopped_before:]

        with closing(followed.open()) as sink, suppress(TailraceError):
            write_here(sink, stopped())
        write(followed, last_update, *later_rows)
        plain = [*before, *earlier[0], *earlier[1], *later, last_update]
        assert followed.rows(PLAIN, "id", "v", "w", "x") == selected(WIDER, plain, "id", "v", "w", "x")
        assert followed.rows(WIDE, "id", "c", "s", "v") == selected(
            WIDE, [partition_deletion, *later_rows], "id", "c", "s", "v"
        )
